"""Which language a text is in, and what it is about: by script and by words, nothing learned."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")

#: Words that are frequent in one language and rare in the others listed.
_FREQUENT: Final = {
    "en": "the and you we our is are for with please would have this that not how can hello thanks from your of to i my",
    "de": "der die das und ist nicht wir sie ein eine für mit bitte ich wie kann den von auf haben uns guten hallo seit zu im werden",
    "fr": "le la les des est nous vous pour avec une un merci bonjour pas je et dans notre comment sur votre du depuis pouvez",
    "es": "el los las es para con una por favor nosotros hola gracias no que necesitamos nuestro cómo desde del y su tenemos buenos en",
    "nl": "de het een wij niet voor met graag ik en onze hoe kan van dat zijn hallo wij u naar sinds goedemiddag aan graag",
    "it": "il gli una per con non vorremmo grazie buongiorno noi che è nostro come dal di della sono abbiamo ci può da e",
    "pt": "o os uma para com não por favor obrigado olá nós que é nosso como desde temos você do da precisamos",
    "sv": "och är vi en ett för med inte hej tack jag hur kan vår det att från på har skulle vill",
    "pl": "i jest nie dla z proszę dzień dobry jak możemy nasz czy na że od mamy dziękuję w potrzebujemy",
}  # fmt: skip
FREQUENT: Final = {language: frozenset(words.split()) for language, words in _FREQUENT.items()}

_SCRIPTS: Final = (
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("zh", re.compile(r"[\u4e00-\u9fff]")),
    ("ru", re.compile(r"[\u0400-\u04ff]")),
)


def terms(text: str) -> tuple[str, ...]:
    """A word list as it is written below: entries parted by semicolons and lines."""
    return tuple(dict.fromkeys(entry.strip() for entry in re.split(r"[;\n]", text) if entry.strip()))


def words_of(text: str) -> list[str]:
    """Lower-case words in NFKC, so that full-width letters count like others."""
    return [word.lower() for word in WORD.findall(unicodedata.normalize("NFKC", text))]


def detect(text: str) -> str:
    """The ISO 639-1 code of the language of *text*; "en" where nothing speaks for another."""
    for language, script in _SCRIPTS:
        if script.search(text):
            return language
    words = words_of(text)
    scores = {language: sum(word in frequent for word in words) for language, frequent in FREQUENT.items()}
    best = max(scores.values(), default=0)
    return next(language for language, score in scores.items() if score == best)


#: Words by intent. ``seat*`` also means words that begin so; an entry with a blank, or without an alphabet, is looked for
#: anywhere in the text.
OFFER: Final = terms("""
    offer; quot*; pricing; price*; proposal; license*; licence*; seat*; upgrade; renewal; purchase; buy
    angebot*; preis*; lizenz*; kostenvoranschlag; plätze*
    devis; offre; tarif*; prix; poste*; proposition
    oferta; presupuesto; precio*; licencia*; cotización; plaza*
    offerte; prijs*; licentie*; prijsopgave
    preventivo; prezz*; licenz*; offerta; orçamento; offert; wycena; cennik
    見積; 価格; 料金; 購入
""")
HOW_TO: Final = terms("""
    how; where; guide*; instruction*; documentation; set up; configure
    wie; anleitung; einrichten; einstellen; konfigurieren
    comment; configurer; paramétrer; cómo; configurar; hoe; instellen; come; configurare; impostare
    方法; やり方; 手順; どうすれば; どのように; 設定
""")
FAULT: Final = terms("""
    broken; error*; fault*; fails; failed; failing; failure*; crash*; bug; outage; down; stopped; cannot; can't; unable
    not working; does not work; doesn't work; unresponsive; timeout*
    fehler*; kaputt; störung*; defekt; ausfall; ausgefallen; funktioniert nicht; geht nicht; nicht mehr; hängt
    erreur*; panne; bloqué*; plante; ne fonctionne; ne marche; fallo*; falla*; caído; avería; no funciona
    fout; foutmelding*; storing*; kapot; werkt niet; vastgelopen; errore; errori; guasto; bloccat*; non funziona
    エラー; 障害; 故障; 不具合; 動かない; できません; 動きません; 表示されません
""")
COMPLAINT: Final = terms("""
    complain*; disappoint*; unacceptable; refund*; compensation; angry; outrag*; terrible; worst
    beschwer*; enttäuscht; inakzeptabel; unverschämt; rückerstattung; kündigen; ärgerlich
    réclamation; plainte; déçu*; inacceptable; remboursement; scandaleux
    queja; reclamación; decepcionad*; inaceptable; reembolso
    klacht; teleurgesteld; onacceptabel; terugbetaling; reclamo; delus*; inaccettabile; rimborso
    苦情; クレーム; 返金; 納得できません; 失望
""")


def hits(text: str, among: Iterable[str]) -> int:
    """How many different terms of *among* occur in *text*."""
    whole = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    words = words_of(whole)
    return sum(occurs(term, words, whole) for term in among)


def occurs(term: str, words: Iterable[str], whole: str) -> bool:
    """Whether *term* occurs in a text, given as its words and as a whole, both in lower case."""
    if " " in term or ord(term[0]) > 0x2FFF:
        return term in whole
    if term.endswith("*"):
        return any(word.startswith(term[:-1]) for word in words)
    return term in words


def classify(text: str) -> dict[str, object]:
    """Intent, language and a confidence that grows with how clearly one intent leads."""
    scores = {
        "complaint": 1.5 * hits(text, COMPLAINT),
        "support": float(hits(text, FAULT) + hits(text, HOW_TO)),
        "offer_request": 1.2 * hits(text, OFFER),
    }
    intent, best = max(scores.items(), key=lambda entry: entry[1])
    if best == 0:
        return {"intent": "other", "language": detect(text), "confidence": 0.61}
    lead = best - max(score for name, score in scores.items() if name != intent)
    return {"intent": intent, "language": detect(text), "confidence": round(min(0.98, 0.72 + 0.07 * lead), 2)}
