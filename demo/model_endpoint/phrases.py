"""What the endpoint says, in the languages of the demo's customers. Others are answered in English."""

from __future__ import annotations

from typing import Final

#: Each language has the same names; braces are filled in by the caller. Two thanks: which is used follows the request.
PHRASES: Final[dict[str, dict[str, str]]] = {
    "en": {
        "greeting": "Hello {name},",
        "greeting_nobody": "Hello,",
        "thanks_a": "Thank you for your request. We are glad to offer you the following:",
        "thanks_b": "Many thanks for your interest. Here is our offer:",
        "subject": "Your offer: {what}",
        "subject_for": "Offer for {company}: {what}",
        "line": "- {quantity} × {description} at {unit} = {total}",
        "total": "Total: {total}, net of tax. This offer is valid for 30 days.",
        "offer_close": "If anything should be different, just reply to this message.\n\nKind regards\nYour sales team",
        "article": "The article “{title}” describes it step by step ({source}).",
        "no_article": "I found no article that answers this; a colleague will add one.",
        "ticket": "I have opened ticket {ticket} for the fault you report. The team is looking into it.",
        "ticket_unclear": "I have passed the fault you report on: {said}",
        "rejected": "A colleague looked at this and decided that it should not be done automatically. They will get in touch with you directly.",
        "failed": "One of our systems did not answer as expected, so a colleague will take this up.",
        "nothing": "Thank you for your message. Could you tell us a little more about what you need?",
        "close": "Kind regards\nYour support team",
    },
    "de": {
        "greeting": "Guten Tag {name},",
        "greeting_nobody": "Guten Tag,",
        "thanks_a": "vielen Dank für Ihre Anfrage. Gern bieten wir Ihnen an:",
        "thanks_b": "herzlichen Dank für Ihr Interesse. Hier ist unser Angebot:",
        "subject": "Ihr Angebot: {what}",
        "subject_for": "Angebot für {company}: {what}",
        "line": "- {quantity} × {description} zu {unit} = {total}",
        "total": "Gesamt: {total}, zuzüglich Steuern. Dieses Angebot gilt 30 Tage.",
        "offer_close": "Wenn etwas anders sein soll, antworten Sie einfach auf diese Nachricht.\n\nMit freundlichen Grüßen\nIhr Vertriebsteam",
        "article": "Der Artikel „{title}“ beschreibt es Schritt für Schritt ({source}).",
        "no_article": "Dazu habe ich keinen Artikel gefunden; eine Kollegin wird einen ergänzen.",
        "ticket": "Für die gemeldete Störung habe ich das Ticket {ticket} eröffnet. Das Team kümmert sich darum.",
        "ticket_unclear": "Die gemeldete Störung habe ich weitergegeben: {said}",
        "rejected": "Eine Kollegin hat sich das angesehen und entschieden, dass es nicht automatisch geschehen soll. Sie meldet sich direkt bei Ihnen.",
        "failed": "Eines unserer Systeme hat nicht wie erwartet geantwortet; ein Kollege nimmt sich der Sache an.",
        "nothing": "Vielen Dank für Ihre Nachricht. Können Sie uns etwas genauer sagen, was Sie brauchen?",
        "close": "Mit freundlichen Grüßen\nIhr Support-Team",
    },
    "fr": {
        "greeting": "Bonjour {name},",
        "greeting_nobody": "Bonjour,",
        "thanks_a": "Merci pour votre demande. Nous avons le plaisir de vous proposer :",
        "thanks_b": "Merci de votre intérêt. Voici notre offre :",
        "subject": "Votre devis : {what}",
        "subject_for": "Devis pour {company} : {what}",
        "line": "- {quantity} × {description} à {unit} = {total}",
        "total": "Total : {total}, hors taxes. Cette offre est valable 30 jours.",
        "offer_close": "S'il faut modifier quelque chose, répondez simplement à ce message.\n\nCordialement\nVotre équipe commerciale",
        "article": "L'article « {title} » l'explique pas à pas ({source}).",
        "no_article": "Je n'ai trouvé aucun article à ce sujet ; un collègue en ajoutera un.",
        "ticket": "J'ai ouvert le ticket {ticket} pour la panne que vous signalez. L'équipe s'en occupe.",
        "ticket_unclear": "J'ai transmis la panne que vous signalez : {said}",
        "rejected": "Une collègue a examiné ce point et décidé qu'il ne devait pas être traité automatiquement. Elle vous contactera directement.",
        "failed": "Un de nos systèmes n'a pas répondu comme prévu ; un collègue reprend votre demande.",
        "nothing": "Merci pour votre message. Pourriez-vous préciser ce dont vous avez besoin ?",
        "close": "Cordialement\nVotre équipe d'assistance",
    },
    "es": {
        "greeting": "Hola, {name}:",
        "greeting_nobody": "Hola:",
        "thanks_a": "Gracias por su solicitud. Con mucho gusto le ofrecemos:",
        "thanks_b": "Gracias por su interés. Esta es nuestra oferta:",
        "subject": "Su oferta: {what}",
        "subject_for": "Oferta para {company}: {what}",
        "line": "- {quantity} × {description} a {unit} = {total}",
        "total": "Total: {total}, impuestos no incluidos. Esta oferta es válida durante 30 días.",
        "offer_close": "Si desea cambiar algo, responda a este mensaje.\n\nUn cordial saludo\nSu equipo comercial",
        "article": "El artículo «{title}» lo explica paso a paso ({source}).",
        "no_article": "No he encontrado ningún artículo sobre esto; un compañero añadirá uno.",
        "ticket": "He abierto el ticket {ticket} por la avería que nos comunica. El equipo la está revisando.",
        "ticket_unclear": "He trasladado la avería que nos comunica: {said}",
        "rejected": "Una compañera lo ha revisado y ha decidido que no debe hacerse automáticamente. Se pondrá en contacto con usted.",
        "failed": "Uno de nuestros sistemas no ha respondido como esperábamos; un compañero se ocupará de ello.",
        "nothing": "Gracias por su mensaje. ¿Podría contarnos un poco más sobre lo que necesita?",
        "close": "Un cordial saludo\nSu equipo de soporte",
    },
    "nl": {
        "greeting": "Beste {name},",
        "greeting_nobody": "Goedendag,",
        "thanks_a": "Dank u wel voor uw aanvraag. Graag bieden wij u aan:",
        "thanks_b": "Hartelijk dank voor uw interesse. Hierbij onze offerte:",
        "subject": "Uw offerte: {what}",
        "subject_for": "Offerte voor {company}: {what}",
        "line": "- {quantity} × {description} à {unit} = {total}",
        "total": "Totaal: {total}, exclusief btw. Deze offerte is 30 dagen geldig.",
        "offer_close": "Moet er iets anders? Beantwoord dan gewoon dit bericht.\n\nMet vriendelijke groet\nUw verkoopteam",
        "article": "Het artikel ‘{title}’ beschrijft het stap voor stap ({source}).",
        "no_article": "Ik heb hierover geen artikel gevonden; een collega voegt er een toe.",
        "ticket": "Voor de gemelde storing heb ik ticket {ticket} geopend. Het team kijkt ernaar.",
        "ticket_unclear": "De gemelde storing heb ik doorgegeven: {said}",
        "rejected": "Een collega heeft dit bekeken en besloten dat het niet automatisch moet gebeuren. Zij neemt rechtstreeks contact met u op.",
        "failed": "Een van onze systemen reageerde niet zoals verwacht; een collega pakt het op.",
        "nothing": "Dank u wel voor uw bericht. Kunt u iets meer vertellen over wat u nodig hebt?",
        "close": "Met vriendelijke groet\nUw supportteam",
    },
    "it": {
        "greeting": "Buongiorno {name},",
        "greeting_nobody": "Buongiorno,",
        "thanks_a": "grazie per la richiesta. Siamo lieti di proporLe:",
        "thanks_b": "grazie per l'interesse. Ecco la nostra offerta:",
        "subject": "La Sua offerta: {what}",
        "subject_for": "Offerta per {company}: {what}",
        "line": "- {quantity} × {description} a {unit} = {total}",
        "total": "Totale: {total}, imposte escluse. L'offerta è valida 30 giorni.",
        "offer_close": "Per qualsiasi modifica risponda a questo messaggio.\n\nCordiali saluti\nIl team vendite",
        "article": "L'articolo «{title}» lo spiega passo per passo ({source}).",
        "no_article": "Non ho trovato articoli su questo tema; un collega ne aggiungerà uno.",
        "ticket": "Ho aperto il ticket {ticket} per il guasto segnalato. Il team se ne sta occupando.",
        "ticket_unclear": "Ho inoltrato il guasto segnalato: {said}",
        "rejected": "Una collega ha esaminato la richiesta e ha deciso che non va eseguita automaticamente. La contatterà direttamente.",
        "failed": "Uno dei nostri sistemi non ha risposto come previsto; se ne occuperà un collega.",
        "nothing": "Grazie per il messaggio. Può dirci qualcosa in più su ciò che Le serve?",
        "close": "Cordiali saluti\nIl team di assistenza",
    },
    "ja": {
        "greeting": "{name} 様",
        "greeting_nobody": "お客様各位",
        "thanks_a": "お問い合わせいただきありがとうございます。下記のとおりお見積り申し上げます。",
        "thanks_b": "ご関心をお寄せいただきありがとうございます。お見積りは以下のとおりです。",
        "subject": "お見積り：{what}",
        "subject_for": "{company} 御中 お見積り：{what}",
        "line": "・{description} {quantity} × {unit} = {total}",
        "total": "合計：{total}（税別）。本見積りの有効期限は30日間です。",
        "offer_close": "ご変更がございましたら、このメールにご返信ください。\n\nよろしくお願いいたします。\n営業チーム",
        "article": "手順は記事「{title}」に記載しております（{source}）。",
        "no_article": "該当する記事が見つかりませんでした。担当者が追加いたします。",
        "ticket": "ご報告の不具合について、チケット {ticket} を作成しました。担当チームが確認しております。",
        "ticket_unclear": "ご報告の不具合を担当へ引き継ぎました：{said}",
        "rejected": "担当者が確認し、自動での処理は行わないことになりました。担当者より直接ご連絡いたします。",
        "failed": "システムが正常に応答しなかったため、担当者が引き継ぎます。",
        "nothing": "お問い合わせありがとうございます。ご要望について、もう少し詳しくお聞かせください。",
        "close": "よろしくお願いいたします。\nサポートチーム",
    },
}  # fmt: skip

#: Thousands and decimal separators.
_SEPARATORS: Final = {
    "en": (",", "."),
    "ja": (",", "."),
    "fr": ("\u202f", ","),
    "de": (".", ","),
    "es": (".", ","),
    "nl": (".", ","),
    "it": (".", ","),
}
_WITHOUT_MINOR: Final = frozenset({"JPY", "KRW", "CLP", "VND"})


def phrase(language: str, which: str, **values: object) -> str:
    return PHRASES.get(language, PHRASES["en"])[which].format(**values)


def money(minor: int, currency: str, language: str) -> str:
    """``196000, "EUR", "de"`` → ``1.960,00 EUR``."""
    thousands, decimal = _SEPARATORS.get(language, _SEPARATORS["en"])
    if currency in _WITHOUT_MINOR:
        return f"{minor:,} {currency}".replace(",", thousands)
    whole, cents = divmod(minor, 100)
    return f"{whole:,}".replace(",", thousands) + f"{decimal}{cents:02} {currency}"
