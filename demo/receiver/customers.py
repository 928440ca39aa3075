"""The customers that every account starts with: a dozen plausible companies, on reserved example domains."""

from __future__ import annotations

from typing import Final

FIELDS: Final = ("id", "name", "company", "email", "phone", "city", "country", "language", "currency", "plan")

_ROWS: Final = (
    ("cus_000001", "Hannah Whitlock", "Harbor & Pine Logistics", "hannah.whitlock@harborpine.example", "+1 207 555 0114", "Portland", "US", "en", "USD", "Team"),
    ("cus_000002", "Oliver Ashdown", "Ashdown Surveyors LLP", "oliver@ashdown-surveyors.example", "+44 20 7946 0321", "London", "GB", "en", "GBP", "Business"),
    ("cus_000003", "Jana Brückner", "Brückner Maschinenbau GmbH", "j.brueckner@brueckner-maschinen.example", "+49 711 5550188", "Stuttgart", "DE", "de", "EUR", "Enterprise"),
    ("cus_000004", "Lukas Hofer", "Alpenquell Getränke AG", "lukas.hofer@alpenquell.example", "+43 512 555012", "Innsbruck", "AT", "de", "EUR", "Team"),
    ("cus_000005", "Élodie Marchand", "Ateliers Marchand SARL", "elodie@ateliers-marchand.example", "+33 4 72 55 01 93", "Lyon", "FR", "fr", "EUR", "Business"),
    ("cus_000006", "Noémie Rochat", "Horlogerie Rochat SA", "n.rochat@horlogerie-rochat.example", "+41 32 555 01 47", "Neuchâtel", "CH", "fr", "CHF", "Enterprise"),
    ("cus_000007", "Marta Ibáñez Soler", "Cítricos del Turia S.L.", "marta.ibanez@citricosturia.example", "+34 963 555 108", "Valencia", "ES", "es", "EUR", "Team"),
    ("cus_000008", "Sanne de Wit", "De Wit Kassenbouw B.V.", "sanne@dewit-kassenbouw.example", "+31 174 555 026", "Naaldwijk", "NL", "nl", "EUR", "Business"),
    ("cus_000009", "Wouter Claes", "Claes Textiel NV", "wouter.claes@claestextiel.example", "+32 9 555 01 72", "Gent", "BE", "nl", "EUR", "Team"),
    ("cus_000010", "Giulia Ferrante", "Ferrante Ceramiche S.r.l.", "giulia@ferrante-ceramiche.example", "+39 0536 555 019", "Sassuolo", "IT", "it", "EUR", "Business"),
    ("cus_000011", "佐藤 美咲", "みなと精機株式会社", "misaki.sato@minato-seiki.example", "+81 45 555 0163", "横浜", "JP", "ja", "JPY", "Enterprise"),
    ("cus_000012", "Priya Raman", "Lumen Street Clinics", "priya.raman@lumenstreet.example", "+353 1 555 0139", "Dublin", "IE", "en", "EUR", "Enterprise"),
)  # fmt: skip

CUSTOMERS: Final[tuple[dict[str, str], ...]] = tuple(dict(zip(FIELDS, row, strict=True)) for row in _ROWS)
