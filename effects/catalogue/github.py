"""Issues at GitHub, as an example of a tracker that knows no keys: repeats are untold, but it can be asked.

The effect's id stands in a line of the issue's text that readers do not see. Whether an issue is there is found by
listing the repository's issues since the sending and reading that line. The receiver is named ``github``: base address
``https://api.github.com``, its secret a token that may write issues and nothing else.
"""

from __future__ import annotations

import re
from datetime import date
from functools import partial

from effects.contracts import Asking, EffectContract, Fact, Payload
from effects.states import Dedup, Reversibility
from effects.wires import HttpListing, HttpWire

RECEIVER = "github"
VERSION = "2022-11-28"
_CHECKED = date(2026, 12, 1)
_ISSUES = "https://docs.github.com/en/rest/issues/issues"
_LIMITS = "https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")

FACTS = (
    Fact("Creating an issue takes no key by which a repeat could be told.", _ISSUES, _CHECKED),
    Fact(
        "A repository's issues are listed with state, creator and since (the time of the last change), in pages of up "
        "to 100, with the next page in the Link header.",
        _ISSUES,
        _CHECKED,
    ),
    Fact("The list holds pull requests too.", _ISSUES, _CHECKED),
    Fact("Creating an issue notifies people.", _ISSUES, _CHECKED),
    Fact(
        "Nothing says how soon a new issue is listed: not finding it proves nothing.",
        _ISSUES,
        _CHECKED,
    ),
    Fact(
        "Over a rate limit the answer is 403 or 429, with retry-after, or with x-ratelimit-remaining 0 and "
        "x-ratelimit-reset.",
        _LIMITS,
        _CHECKED,
    ),
)


def _harmless(repository: str, text: str) -> Payload:
    return {
        "repository": repository,
        "title": f"A probe, to be ignored: {text}",
        "body": "Nothing is to be done about this issue. It can be closed.",
    }


def create_issue(
    owner: str,
    repository: str,
    *,
    creator: str = "",
    type: str = "github.create_issue",
    receiver: str = RECEIVER,
    asking: Asking | None = None,
    for_probes: bool = False,
) -> EffectContract:
    """Open an issue in this repository. *creator*: the account that the token belongs to; then only its issues are read.

    *for_probes*: nobody is disturbed by an issue in it, so that a probe may leave some there. An issue is harmless
    nowhere else: whoever watches the repository has mail of it.

    Raises ValueError for a name that GitHub could not have.
    """
    for name in (owner, repository, *([creator] if creator else [])):
        if not _NAME.fullmatch(name.removesuffix("[bot]")) or not name.strip("."):
            raise ValueError(f"{name!r} can't be a name at GitHub")
    issues = f"/repos/{owner}/{repository}/issues"
    by = f"&creator={creator.replace('[bot]', '%5Bbot%5D')}" if creator else ""
    made = HttpListing(f"{issues}?state=all&sort=created&direction=desc&per_page=100{by}&since={{since}}")
    return EffectContract(
        type=type,
        version=1,
        title="Open an issue at GitHub",
        receiver=receiver,
        wire=HttpWire(
            method="POST",
            path=issues,
            headers={"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": VERSION},
            unsent=("repository",),
            marker="body",
            reference="number",
            echoes=("title",),
            rate_limited=frozenset({403}),
            look_up=made,
            listing=made,
        ),
        recipient="repository",
        schema={
            "type": "object",
            "properties": {
                "repository": {"const": f"{owner}/{repository}", "title": "Repository"},
                "title": {"type": "string", "minLength": 1, "maxLength": 256, "title": "Title"},
                "body": {"type": "string", "maxLength": 60_000, "title": "Text"},
                "labels": {"type": "array", "items": {"type": "string"}, "title": "Labels"},
                "assignees": {"type": "array", "items": {"type": "string"}, "title": "Assignees"},
            },
            "required": ["repository", "title", "body"],
            "additionalProperties": False,
        },
        # It can be closed, not unmade, and who watches the repository has had mail of it.
        reversibility=Reversibility.IRREVERSIBLE,
        dedup=Dedup.QUERY,
        settle=60,
        deadline=20,
        creates=True,
        asking=asking,
        summary=lambda payload: str(payload["title"]),
        double=lambda payload: {"number": 0, "title": payload["title"]},
        harmless=partial(_harmless, f"{owner}/{repository}") if for_probes else None,
        facts=FACTS,
    )
