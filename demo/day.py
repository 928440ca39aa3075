"""One working day at the company, as data: who wrote, what they wrote, and what people did about it.

Nothing here happens by itself: demo.playing starts the real runs and decides as these people.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time
from typing import Final

from demo.receiver.customers import CUSTOMERS
from effects.states import Decision

OFFER: Final = "sales_offer_agent"
SUPPORT: Final = "support_agent"


@dataclass(frozen=True)
class Customer:
    """Who wrote. *ref* is the CRM's id; somebody the CRM does not know is referred to by their address."""

    ref: str
    name: str
    company: str
    email: str
    language: str


@dataclass(frozen=True)
class Said:
    """A message of the conversation's beginning. Without an author it is the customer's own."""

    at: time
    text: str
    author: str = ""


@dataclass(frozen=True)
class Decides:
    """What an approver does when the run asks. With *mail_hangs* the offer's mail is taken and never acknowledged."""

    decision: Decision
    reason: str
    by: str = "approver"
    mail_hangs: bool = False


@dataclass(frozen=True)
class Cancels:
    """The operator cancels while the run waits for approval, and notes why."""

    note: str


@dataclass(frozen=True)
class Scene:
    """One conversation. *key* is its name for ever; *ends* is where its run comes to rest, "" without a run."""

    key: str
    customer: Customer
    channel: str
    subject: str
    said: tuple[Said, ...]
    workflow: str = ""
    act: Decides | Cancels | None = None
    ends: str = ""

    @property
    def request(self) -> str:
        return self.said[0].text


CUSTOMER: Final = {
    row["id"]: Customer(row["id"], row["name"], row["company"], row["email"], row["language"])
    for row in CUSTOMERS
}
HANNAH, OLIVER, JANA, LUKAS, ELODIE, NOEMIE, MARTA, SANNE, WOUTER, GIULIA, MISAKI, PRIYA = CUSTOMER.values()
STRANGER: Final = Customer(
    "tenders@north-quay.example", "Rahel Steiner", "North Quay Facilities", "tenders@north-quay.example", "en"
)

DAY: Final = (
    Scene(
        key="harbor-pine-seats",
        customer=HANNAH,
        channel="mail",
        subject="25 more seats for the Portland team",
        said=(
            Said(
                time(8, 4),
                "Good morning,\n\n"
                "we are taking on a second shift in Portland next month. Could you send us a quote for 25 seats on the "
                "Team plan, and priority support for the year? Same billing contact as before.\n\n"
                "Thanks,\nHannah Whitlock\nHarbor & Pine Logistics",
            ),
        ),
        workflow=OFFER,
        act=Decides(Decision.APPROVE, "List price, no discount agreed. Matches Hannah's headcount plan."),
        ends="completed",
    ),
    Scene(
        key="brueckner-40-plaetze",
        customer=JANA,
        channel="mail",
        subject="Angebot für 40 Plätze und zwei Schulungstage",
        said=(
            Said(
                time(8, 21),
                "Guten Morgen,\n\n"
                "wir möchten unsere Arbeitsvorbereitung in Stuttgart umstellen und bitten um ein Angebot für 40 Plätze "
                "sowie 2 Tage Schulung vor Ort. Unser Einkauf braucht das Angebot bis Freitag.\n\n"
                "Mit freundlichen Grüßen\nJana Brückner\nBrückner Maschinenbau GmbH",
            ),
        ),
        workflow=OFFER,
        act=Decides(Decision.APPROVE, "Quantities and training days as in our call on Tuesday."),
        ends="completed",
    ),
    Scene(
        key="alpenquell-sso",
        customer=LUKAS,
        channel="chat",
        subject="Wie richten wir Single Sign-on ein?",
        said=(
            Said(
                time(8, 47),
                "Hallo! Wie können wir Single Sign-on für unsere Leute einrichten? Wir haben seit letzter Woche einen "
                "eigenen Identity Provider und finden die Einstellung nicht.",
            ),
        ),
        workflow=SUPPORT,
        ends="completed",
    ),
    Scene(
        key="ashdown-12-seats",
        customer=OLIVER,
        channel="mail",
        subject="Quote: 12 seats and priority support",
        said=(
            Said(
                time(9, 2),
                "Dear team,\n\n"
                "following the demonstration last week, please send me a quote for 12 seats with priority support. "
                "If it is in our hands by Thursday I can put it before the partners.\n\n"
                "Kind regards\nOliver Ashdown",
            ),
        ),
        workflow=OFFER,
        act=Decides(Decision.APPROVE, "As demonstrated last week. Sterling prices checked.", by="jonas"),
        ends="completed",
    ),
    Scene(
        key="marchand-18-postes",
        customer=ELODIE,
        channel="mail",
        subject="Demande de devis : 18 postes et une formation",
        said=(
            Said(
                time(9, 18),
                "Bonjour,\n\n"
                "nous ouvrons un deuxième atelier à Villeurbanne. Pourriez-vous nous envoyer un devis pour 18 postes et "
                "une journée de formation sur place, si possible avant la fin du mois ?\n\n"
                "Bien cordialement,\nÉlodie Marchand\nAteliers Marchand SARL",
            ),
        ),
        workflow=OFFER,
        ends="waiting_approval",
    ),
    Scene(
        key="rochat-export",
        customer=NOEMIE,
        channel="mail",
        subject="Erreur lors de l’export des rapports",
        said=(
            Said(
                time(9, 40),
                "Bonjour, depuis ce matin l’export PDF des rapports affiche une erreur et la page reste blanche, sur "
                "trois postes différents. Nous devons remettre le rapport qualité à notre client demain matin, c’est "
                "assez urgent.\n\nMerci d’avance,\nNoémie Rochat",
            ),
        ),
        workflow=SUPPORT,
        ends="waiting_approval",
    ),
    Scene(
        key="turia-15-plazas",
        customer=MARTA,
        channel="mail",
        subject="Presupuesto para la próxima campaña",
        said=(
            Said(
                time(9, 55),
                "Buenos días:\n\n"
                "Para la próxima campaña necesitamos 15 plazas más y 1 jornada de formación para los encargados del "
                "almacén. ¿Nos pueden enviar un presupuesto?\n\n"
                "Gracias y un saludo,\nMarta Ibáñez Soler\nCítricos del Turia",
            ),
        ),
        workflow=OFFER,
        act=Decides(Decision.APPROVE, "Seasonal seats at the usual price, as last season."),
        ends="completed",
    ),
    Scene(
        key="dewit-30-gebruikers",
        customer=SANNE,
        channel="mail",
        subject="Offerte voor 30 gebruikers",
        said=(
            Said(
                time(10, 12),
                "Goedemiddag,\n\n"
                "Wij willen met de hele planning overstappen. Graag ontvang ik een offerte voor 30 gebruikers en "
                "2 dagen opleiding in Naaldwijk.\n\n"
                "Met vriendelijke groet,\nSanne de Wit",
            ),
        ),
        workflow=OFFER,
        ends="waiting_approval",
    ),
    Scene(
        key="claes-scannerapp",
        customer=WOUTER,
        channel="chat",
        subject="Scanner-app geeft een foutmelding",
        said=(
            Said(
                time(10, 26),
                "Dag, onze scanner-app geeft een foutmelding zodra we een rol inscannen: “sync failed (409)”. Opnieuw "
                "aanmelden helpt niet. Het magazijn ligt stil, dus graag met spoed.",
            ),
        ),
        workflow=SUPPORT,
        act=Decides(Decision.APPROVE, "Known to the platform team since this morning; they want the ticket."),
        ends="completed",
    ),
    Scene(
        key="ferrante-20-licenze",
        customer=GIULIA,
        channel="mail",
        subject="Preventivo per 20 licenze",
        said=(
            Said(
                time(10, 41),
                "Buongiorno,\n\n"
                "vorremmo un preventivo per 20 licenze e 1 giorno di formazione nel nostro stabilimento di Sassuolo. "
                "Se possibile entro questa settimana, grazie.\n\n"
                "Cordiali saluti,\nGiulia Ferrante\nFerrante Ceramiche S.r.l.",
            ),
        ),
        workflow=OFFER,
        act=Decides(Decision.APPROVE, "Current price list, no discount.", mail_hangs=True),
        ends="failed",
    ),
    Scene(
        key="minato-60",
        customer=MISAKI,
        channel="mail",
        subject="ライセンス60名分の見積のお願い",
        said=(
            Said(
                time(11, 3),
                "お世話になっております。みなと精機の佐藤です。\n\n"
                "横浜工場での導入にあたり、ライセンス60名分と3日間の研修について、お見積りをお願いいたします。"
                "社内稟議のため、今週中にいただけますと助かります。\n\n"
                "どうぞよろしくお願いいたします。\n佐藤 美咲",
            ),
        ),
        workflow=OFFER,
        ends="waiting_approval",
    ),
    Scene(
        key="lumen-120-seats",
        customer=PRIYA,
        channel="mail",
        subject="Rolling out to all four clinics: 120 seats",
        said=(
            Said(
                time(11, 20),
                "Hi,\n\n"
                "the pilot in Dublin went well and the board has agreed to roll out to all four clinics. Please quote "
                "120 seats, 4 days of onboarding and priority support.\n\n"
                "Best wishes\nPriya Raman\nLumen Street Clinics",
            ),
        ),
        workflow=OFFER,
        act=Decides(Decision.APPROVE, "Board approval seen. Onboarding days confirmed with our trainers."),
        ends="completed",
    ),
    Scene(
        key="harbor-pine-billing",
        customer=HANNAH,
        channel="phone",
        subject="Call: invoices go to the new address",
        said=(
            Said(
                time(11, 48),
                "Hannah Whitlock called. From next month invoices go to 18 Commercial Street, Portland. She will "
                "confirm by mail; nothing to change before that.",
                author="Olivia Brandt",
            ),
        ),
    ),
    Scene(
        key="north-quay-tender",
        customer=STRANGER,
        channel="mail",
        subject="Request for quotation NQ-2231",
        said=(
            Said(
                time(12, 15),
                "Dear Sir or Madam,\n\n"
                "we are inviting quotations for workforce planning software: 10 seats, one year, with one day of "
                "onboarding. Please quote reference NQ-2231.\n\n"
                "Rahel Steiner\nProcurement, North Quay Facilities",
            ),
        ),
        workflow=OFFER,
        ends="failed",
    ),
    Scene(
        key="alpenquell-6-plaetze",
        customer=LUKAS,
        channel="mail",
        subject="Nachbestellung: 6 Plätze für die Abfüllung",
        said=(
            Said(
                time(13, 5),
                "Servus,\n\n"
                "für die Abfüllung brauchen wir noch 6 Plätze. Bitte um ein Angebot zum Preis vom letzten Jahr, so war "
                "das mit Ihrem Vertrieb besprochen.\n\n"
                "Liebe Grüße aus Innsbruck\nLukas Hofer",
            ),
        ),
        workflow=OFFER,
        act=Decides(
            Decision.REJECT,
            "Last year's price was promised to him; the offer is at list price. I will call Lukas first.",
        ),
        ends="completed",
    ),
    Scene(
        key="dewit-collegas",
        customer=SANNE,
        channel="chat",
        subject="Hoe nodig ik collega’s uit?",
        said=(
            Said(
                time(13, 31),
                "Hallo, hoe kan ik zelf collega's uitnodigen en seats toewijzen? Ik zie alleen mijn eigen account.",
            ),
        ),
        workflow=SUPPORT,
        ends="completed",
    ),
    Scene(
        key="ashdown-site-licence",
        customer=OLIVER,
        channel="mail",
        subject="Alternative quote: 30 seats instead of 12",
        said=(
            Said(
                time(14, 10),
                "Dear team,\n\n"
                "two of the partners would rather equip the whole Leeds office. Could you quote 30 seats and one "
                "onboarding day as an alternative, please?\n\n"
                "Kind regards\nOliver Ashdown",
            ),
        ),
        workflow=OFFER,
        act=Cancels(
            "Oliver called: the partners stay with 12 seats. He asks us not to send the alternative, so I stop it."
        ),
        ends="cancelled",
    ),
    Scene(
        key="turia-factura",
        customer=MARTA,
        channel="mail",
        subject="Factura duplicada",
        said=(
            Said(
                time(14, 52),
                "Hola:\n\n"
                "hemos recibido dos veces la última factura, con números distintos y el mismo importe. Antes de "
                "presentar una reclamación prefiero preguntarles cuál es la correcta.\n\n"
                "Un saludo,\nMarta Ibáñez",
            ),
            Said(
                time(15, 6),
                "Accounts says the second one was a test run of the new template. Credit note is on its way; Marta is "
                "to be told once it is booked.",
                author="Olivia Brandt",
            ),
        ),
    ),
    Scene(
        key="lumen-rota",
        customer=PRIYA,
        channel="chat",
        subject="Cork sees yesterday’s rota",
        said=(
            Said(
                time(15, 37),
                "Hello, the Cork clinic still sees yesterday's rota on the wall display and the sync fails with an error "
                "every few minutes. The other three clinics are fine. Can you have a look?",
            ),
        ),
    ),
    Scene(
        key="brueckner-werkstatt",
        customer=JANA,
        channel="mail",
        subject="Nachtrag: 5 Plätze für die Lehrwerkstatt",
        said=(
            Said(
                time(16, 8),
                "Guten Tag,\n\n"
                "unabhängig von den 40 Plätzen von heute früh: Für die Lehrwerkstatt bräuchten wir gesondert ein Angebot "
                "über 5 Plätze, Rechnung bitte an die Ausbildungsabteilung.\n\n"
                "Mit freundlichen Grüßen\nJana Brückner",
            ),
        ),
    ),
)
