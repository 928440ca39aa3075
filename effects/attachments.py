"""Keep and read files by their content. A reference is plain JSON, for states and payloads."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from console.kernel.canonical import JSONValue
from console.kernel.crypto import seal, unseal
from console.kernel.errors import Invalid, NotFound
from effects.models import Attachment

#: A file may have so many bytes. Larger ones belong into a store of files, and their address into the state.
LARGEST = 20_000_000
LONGEST_NAME = 200
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,80}/[a-z0-9][a-z0-9!#$&^_.+-]{0,80}")


@dataclass(frozen=True)
class Reference:
    """What a state or payload holds in the place of a file."""

    digest: str
    name: str
    media_type: str
    size: int

    def as_json(self) -> dict[str, JSONValue]:
        return {
            "attachment": self.digest,
            "name": self.name,
            "media_type": self.media_type,
            "size": self.size,
        }


def keep(workspace_id: str, data: bytes, *, name: str, media_type: str) -> Reference:
    """Keep *data*, or find it kept already. Raises Invalid for what is too large, unnamed, or of no media type."""
    if len(data) > LARGEST:
        raise Invalid(f"{name} has {len(data):,} bytes; a file may have {LARGEST:,}.", field="data")
    if not name.strip() or len(name) > LONGEST_NAME or "/" in name or "\x00" in name:
        raise Invalid(f"A file's name has 1 to {LONGEST_NAME} characters and no slash.", field="name")
    if not _MEDIA_TYPE.fullmatch(media_type):
        raise Invalid(f"{media_type!r} is no media type, like application/pdf.", field="media_type")
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if not Attachment.objects.filter(workspace_id=workspace_id, digest=digest).exists():
        sealed = seal(data, workspace=workspace_id, owner=digest)
        row = Attachment(workspace_id=workspace_id, digest=digest, size=len(data), data=sealed)
        # Two tasks may keep the same file at once: the first one's bytes are the second one's.
        Attachment.objects.bulk_create([row], ignore_conflicts=True)
    return Reference(digest, name, media_type, len(data))


def read(workspace_id: str, reference: JSONValue) -> bytes:
    """The bytes that a reference names. Raises Invalid for what is none, NotFound, Undecryptable."""
    digest = digest_of(reference)
    if not digest:
        raise Invalid("This is no reference to a file.", field="attachment")
    row = Attachment.objects.filter(workspace_id=workspace_id, digest=digest).first()
    if row is None:
        raise NotFound(f"There is no file {digest} here.")
    return unseal(row.data, workspace=workspace_id, owner=digest)


def digest_of(reference: JSONValue) -> str:
    """The digest in a reference; empty for anything else."""
    digest = reference.get("attachment") if isinstance(reference, dict) else None
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else ""
