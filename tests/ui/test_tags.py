from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django import forms
from django.template import Context, Template
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from console.kernel import words
from console.kernel.masking import mask
from console.templatetags import ui

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&"
SPRITE = (Path(__file__).resolve().parents[2] / "static" / "icons" / "sprite.svg").read_text("utf-8")
SYMBOLS = set(re.findall(r'<symbol id="([^"]+)"', SPRITE))


def render(source: str, **context: Any) -> str:
    return Template("{% load ui %}" + source).render(Context(context))


class Tags(HTMLParser):
    """The elements and attributes that a browser would see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def is_harmless(html: str) -> bool:
    seen = Tags(html)
    return not {"script", "img"} & set(seen.names) and not any(
        name.startswith("on") for name in seen.attributes
    )


class SampleForm(forms.Form):
    reason = forms.CharField(label=HOSTILE, help_text="One <b>sentence</b>.")
    sure = forms.BooleanField(required=False)


# -- hostile text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        '{% icon "check" x %}',
        "{% state x %}",
        '{% state "failed" "run" note=x %}',
        "{% id x %}",
        '{% id x "/w/acme/" %}',
        "{% copy_button x %}",
        "{{ x|reveal_hidden }}",
        "{% tree x %}",
        "{% tree nested %}",
        '{% disabled_reason x x "play" %}',
        "{% money x x %}",
        "{% failure 'worker_lost' x %}",
        '{% include "components/cause.html" with title=x text=x error=x step=x frames=x %}',
        '{% include "components/diff.html" with rows=rows %}',
        '{% include "components/message.html" %}',
        '{% include "components/facts.html" with facts=facts %}',
        '{% include "components/notice.html" with title=x text=x %}',
        '{% include "components/empty.html" with title=x text=x %}',
        '{% include "components/consequences.html" with keeps=items effects=items %}',
        '{% include "components/lineage.html" %}',
    ],
)
def test_hostile_text_stays_text(source: str) -> None:
    html = render(
        source,
        x=HOSTILE,
        nested={HOSTILE: [HOSTILE, {"k": HOSTILE * 20}]},
        rows=[{"path": HOSTILE, "before": HOSTILE, "after": HOSTILE, "kind": "changed"}],
        message={"author": HOSTILE, "text": HOSTILE, "role": "customer", "note": HOSTILE},
        facts=[(HOSTILE, HOSTILE)],
        items=[{"what": HOSTILE, "how": HOSTILE, "state": "ready"}, HOSTILE],
        node={
            "id": HOSTILE,
            "href": "#",
            "state": "failed",
            "kind": "original",
            "why": HOSTILE,
            "who": HOSTILE,
        },
    )
    assert is_harmless(html), html
    assert "alert(1)" in html  # it is shown, not dropped


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
        max_leaves=30,
    )
)
def test_a_tree_of_anything_is_well_formed_and_encodable(value: object) -> None:
    html = ui.tree(value)
    html.encode("utf-8")
    assert is_harmless(html)
    assert html.count("<ul") == html.count("</ul>")
    assert html.count("<details") == html.count("</details>")


# -- hidden characters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "char",
    [
        "\u202e",
        "\u200b",
        "\u2066",
        "\u00ad",
        "\u3164",
        "\U000e0041",
        "\ufeff",
        "\x00",
        "\x1b",
        "\u2028",
        "\ufe01",
        "\ud800",
    ],
)
def test_a_character_that_hides_is_shown_as_a_mark(char: str) -> None:
    html = ui.reveal_hidden(f"a{char}b")
    html.encode("utf-8")
    assert char not in html
    assert html.count("hidden-char") == 1
    assert f"U+{ord(char):04X}" in html
    assert ui.has_hidden(f"a{char}b")


@pytest.mark.parametrize(
    "text", ["Größe 12 µm", "Straße\n\tnach Graz", "می‌خواهم", "क्‍ष", "👩‍🔧 ❤️ 1️⃣", "日本語", ""]
)
def test_honest_writing_is_left_alone(text: str) -> None:
    assert ui.reveal_hidden(text) == text
    assert not ui.has_hidden(text)


def test_a_message_smuggled_in_variation_selectors_is_shown() -> None:
    assert ui.reveal_hidden("👍" + "\ufe0f" + "\ufe01\ufe02").count("hidden-char") == 2


def test_the_warning_counts_and_says_nothing_about_honest_text() -> None:
    assert "2 hidden characters" in render("{% hidden_warning a b %}", a="x\u200b", b="y\u202e")
    assert render("{% hidden_warning a %}", a="x") == ""
    assert "One hidden character" in render("{% tree v %}", v={"to": "AC\u202eEMC"})


# -- trees ------------------------------------------------------------------------------------------------------


def test_numbers_are_exact() -> None:
    html = ui.tree({"id": 90071992547409931234, "price": Decimal("0.10"), "on": True, "none": None})
    for text in ("90071992547409931234", "0.10", "true", "null"):
        assert f">{text}<" in html


def test_a_mask_is_a_mask_and_not_a_string() -> None:
    html = ui.tree(mask({"iban": "DE02 1203", "to": "•••• masked"}, ["iban"]))
    assert html.count("tree__mask") == 1
    assert "9 characters" in html
    assert "“•••• masked”" in html  # a text that only says so stays a text
    assert "1203" not in html


def test_paths_can_be_copied() -> None:
    html = ui.tree({"offer": {"lines": [{"the price": 1}]}})
    paths = re.findall(r'data-copy="([^"]+)"', html)
    assert sorted(paths) == [
        "offer",
        "offer.lines",
        "offer.lines[0]",
        "offer.lines[0][&quot;the price&quot;]",
    ]


def test_long_text_is_folded_and_whole() -> None:
    text = "x" * 5_000
    html = ui.tree({"t": text})
    assert "5,000 characters" in html
    assert text in html
    assert "Shown partly" not in html


@pytest.mark.parametrize(
    "value",
    [
        list(range(10_000)),
        {str(n): {"a": n} for n in range(5_000)},
        {"t": "x" * 1_000_000},
        json.loads("[" * 200 + "]" * 200),
    ],
    ids=["long", "wide", "text", "deep"],
)
def test_a_huge_value_is_shown_partly_and_says_so(value: object) -> None:
    html = ui.tree(value)
    assert "Shown partly" in html
    assert len(html) < 400_000


def test_what_is_left_out_is_counted() -> None:
    assert "90 more, not shown" in ui.tree(list(range(100)), max_nodes=11)


# -- ids, times, amounts ------------------------------------------------------------------------------------------


def test_an_id_is_cut_in_the_middle_and_whole_inside() -> None:
    html = render("{% id x %}", x="run_01JQ8M4T7ZC3XK9V2B6N5H0WK2")
    assert "run_01JQ…0WK2" in html
    assert 'data-copy="run_01JQ8M4T7ZC3XK9V2B6N5H0WK2"' in html
    assert ui.middle_cut("acme") == "acme"


def test_a_linked_id_leads_there() -> None:
    seen = Tags(render('{% id x "/w/acme/runs/1/" %}', x="run_01JQ8M4T7ZC3XK9V2B6N5H0WK2"))
    assert seen.names.count("a") == 1
    assert seen.names.count("button") == 1


NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ago", "words_said"),
    [
        (timedelta(seconds=2), "now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=4, seconds=50), "4 min ago"),
        (timedelta(hours=26), "1 d ago"),
        (timedelta(days=40), "21 Oct 2026"),
        (-timedelta(minutes=26, seconds=1), "in 26 min"),
    ],
)
def test_relative_times(ago: timedelta, words_said: str) -> None:
    assert ui.relative(NOON - ago, NOON) == words_said


def test_a_time_carries_the_exact_utc() -> None:
    there = datetime(2026, 11, 30, 14, 2, 3, tzinfo=timezone.get_fixed_timezone(60))
    html = ui.time_tag(there, "exact")
    assert 'title="2026-11-30 13:02:03 UTC"' in html
    assert 'datetime="2026-11-30T13:02:03.000Z"' in html


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        ui.time_tag(datetime(2026, 1, 1))  # noqa: DTZ001


def test_no_time_is_a_dash() -> None:
    assert ui.time_tag(None) == ui.NOTHING


@pytest.mark.parametrize(
    ("minor", "currency", "said"),
    [
        (1240000, "EUR", "12,400.00 EUR"),
        (5, "EUR", "0.05 EUR"),
        (-4200, "USD", "−42.00 USD"),
        (980000, "JPY", "980,000 JPY"),
        (1, "KWD", "0.001 KWD"),
        (10**20 + 1, "EUR", "1,000,000,000,000,000,000.01 EUR"),
    ],
)
def test_money_is_exact(minor: int, currency: str, said: str) -> None:
    assert ui.money_words(minor, currency) == said


@pytest.mark.parametrize("minor", ["12.4", 12.4, True, "1240000"])
def test_an_amount_is_never_guessed(minor: object) -> None:
    assert "(?)" in ui.money(minor, "EUR")


# -- words and signs ------------------------------------------------------------------------------------------------


def test_every_icon_named_anywhere_is_in_the_sprite() -> None:
    named = {word.icon for table in words.TABLES.values() for word in table.values()}
    root = Path(__file__).resolve().parents[2]
    for template in (root / "templates").rglob("*.html"):
        text = template.read_text("utf-8")
        named |= set(re.findall(r'\{% icon "([a-z0-9-]+)"', text))
        named |= set(re.findall(r'\bicon="([a-z0-9-]+)"', text))
    assert named <= SYMBOLS, named - SYMBOLS


def test_uncertain_is_amber_and_a_rejection_is_not_an_error() -> None:
    assert words.EFFECT["uncertain"].tone == words.ATTEMPT["unknown"].tone == "unsure"
    assert words.APPROVAL["reject"].tone == words.EFFECT["rejected_by_person"].tone == "still"
    assert words.RUN["waiting_approval"].tone == "turn"


def test_a_state_is_word_icon_and_tone() -> None:
    html = render('{% state "waiting_approval" "run" %}')
    assert "Waiting for approval" in html
    assert "#user-round-check" in html
    assert "tone--turn" in html


def test_the_mark_alone_keeps_its_word_for_screen_readers() -> None:
    assert 'aria-label="Failed"' in render('{% state "failed" "step" look="mark" %}')


def test_a_sub_state_is_said_instead() -> None:
    assert "Uncertain" in render('{% state "pending" "effect" sub="uncertain" %}')
    assert "Pending" in render('{% state "pending" "effect" sub="" %}')


def test_an_unknown_status_is_shown_as_it_is() -> None:
    assert "No such thing" in render('{% state "no_such_thing" "run" %}')


def test_every_failure_reads_as_a_sentence_with_and_without_a_name() -> None:
    for code in words.FAILURES:
        for sentence in (words.failure_sentence(code, "crm {x}"), words.failure_sentence(code)):
            assert sentence.endswith(".")
            assert "{it}" not in sentence
        assert "crm {x}" in words.failure_sentence(code, "crm {x}")


# -- forms -------------------------------------------------------------------------------------------------------


def test_a_field_ties_hint_and_error_to_its_input() -> None:
    form = SampleForm({"reason": ""})
    html = render("{% field form.reason %}", form=form)
    assert 'aria-describedby="id_reason_hint id_reason_error"' in html
    assert 'aria-invalid="true"' in html
    assert 'id="id_reason_error"' in html
    assert 'for="id_reason"' in html
    assert is_harmless(html)


def test_a_field_without_errors_claims_none() -> None:
    html = render("{% field form.sure %}", form=SampleForm())
    assert "aria-invalid" not in html
    assert "aria-describedby" not in html


def test_a_lever_that_is_off_says_why_and_can_be_reached() -> None:
    html = render(
        '{% include "components/lever.html" with label="Continue" href="/x/" reason="waits for a decision" %}'
    )
    assert "waits for a decision" in html
    assert 'aria-disabled="true"' in html
    assert "/x/" not in html
    assert " disabled" not in html
