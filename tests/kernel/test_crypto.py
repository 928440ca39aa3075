from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from console.kernel import crypto
from console.kernel.canonical import JSONValue
from console.kernel.crypto import Undecryptable

OLD, NEW = {"k0": b"0" * 32}, {"k1": b"1" * 32}
NAMES = st.text(st.characters(codec="utf-8"), min_size=1)


@pytest.fixture(autouse=True, scope="module")
def _one_key() -> Iterator[None]:
    """Module-wide: hypothesis runs many examples in one test."""
    with override_settings(SIGNALBOX_KEYS=NEW):
        yield


@given(st.binary(), NAMES, NAMES)
def test_what_was_sealed_opens_for_its_owner(plain: bytes, workspace: str, owner: str) -> None:
    sealed = crypto.seal(plain, workspace=workspace, owner=owner)
    assert crypto.unseal(sealed, workspace=workspace, owner=owner) == plain
    assert crypto.unseal(memoryview(sealed), workspace=workspace, owner=owner) == plain


@given(NAMES, NAMES, NAMES, NAMES)
def test_and_for_nobody_else(workspace: str, owner: str, other_workspace: str, other_owner: str) -> None:
    sealed = crypto.seal(b"plain", workspace=workspace, owner=owner)
    if (workspace, owner) != (other_workspace, other_owner):
        with pytest.raises(Undecryptable):
            crypto.unseal(sealed, workspace=other_workspace, owner=other_owner)


@given(st.text("ab", min_size=2))
def test_workspace_and_owner_do_not_run_together(text: str) -> None:
    sealed = crypto.seal(b"plain", workspace=text[:1], owner=text[1:])
    for cut in range(2, len(text)):
        with pytest.raises(Undecryptable):
            crypto.unseal(sealed, workspace=text[:cut], owner=text[cut:])


def test_every_changed_bit_is_noticed() -> None:
    sealed = crypto.seal(b"plain", workspace="acme", owner="eff_1")
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Undecryptable):
            crypto.unseal(bytes(changed), workspace="acme", owner="eff_1")


@given(st.binary(max_size=64))
def test_any_bytes_open_or_are_refused(sealed: bytes) -> None:
    with pytest.raises(Undecryptable):
        crypto.unseal(sealed, workspace="acme", owner="eff_1")


def test_every_cut_value_is_refused() -> None:
    sealed = crypto.seal(b"", workspace="acme", owner="eff_1")
    for length in range(len(sealed)):
        with pytest.raises(Undecryptable):
            crypto.unseal(sealed[:length], workspace="acme", owner="eff_1")


def test_the_plain_text_is_not_in_the_sealed_one_nor_in_an_error() -> None:
    plain = b"a canary that sings"
    sealed = crypto.seal(plain, workspace="acme", owner="eff_1")
    assert plain not in sealed
    with pytest.raises(Undecryptable) as error:
        crypto.unseal(sealed, workspace="other", owner="eff_1")
    assert error.value.key_id == "k1"
    assert "'k1'" in str(error.value)
    assert "canary" not in repr(error.value)


def test_sealing_twice_gives_two_texts() -> None:
    assert len({crypto.seal(b"same", workspace="acme", owner="eff_1") for _ in range(100)}) == 100


def test_rotation(settings: Settings) -> None:
    settings.SIGNALBOX_KEYS = OLD
    sealed = crypto.seal(b"plain", workspace="acme", owner="eff_1")
    assert not crypto.needs_resealing(sealed)
    settings.SIGNALBOX_KEYS = NEW | OLD
    assert crypto.key_id_of(sealed) == "k0"
    assert crypto.needs_resealing(sealed)
    again = crypto.seal(
        crypto.unseal(sealed, workspace="acme", owner="eff_1"), workspace="acme", owner="eff_1"
    )
    assert crypto.key_id_of(memoryview(again)) == "k1"
    settings.SIGNALBOX_KEYS = NEW
    assert crypto.unseal(again, workspace="acme", owner="eff_1") == b"plain"
    with pytest.raises(Undecryptable, match="'k0', which is not configured") as error:
        crypto.unseal(sealed, workspace="acme", owner="eff_1")
    assert error.value.key_id == "k0"


def test_another_key_under_the_same_id_does_not_open(settings: Settings) -> None:
    sealed = crypto.seal(b"plain", workspace="acme", owner="eff_1")
    settings.SIGNALBOX_KEYS = {"k1": b"2" * 32}
    with pytest.raises(Undecryptable):
        crypto.unseal(sealed, workspace="acme", owner="eff_1")


def test_the_key_id_cannot_be_swapped_for_another_name_of_the_same_key(settings: Settings) -> None:
    settings.SIGNALBOX_KEYS = {"k1": b"1" * 32, "k2": b"1" * 32}
    sealed = crypto.seal(b"plain", workspace="acme", owner="eff_1")
    with pytest.raises(Undecryptable):
        crypto.unseal(sealed.replace(b"k1", b"k2", 1), workspace="acme", owner="eff_1")


@pytest.mark.parametrize(
    "keys", [{}, {"k1": b"short"}, {"": b"1" * 32}, {"ключ": b"1" * 32}, {"k" * 256: b"1" * 32}]
)
def test_missing_or_malformed_keys_are_said(settings: Settings, keys: dict[str, bytes]) -> None:
    settings.SIGNALBOX_KEYS = keys
    with pytest.raises(ImproperlyConfigured) as error:
        crypto.seal(b"plain", workspace="acme", owner="eff_1")
    assert "1111" not in str(error.value)


@pytest.mark.parametrize(("workspace", "owner"), [("", "eff_1"), ("acme", "")])
def test_a_value_without_an_owner_is_not_sealed(workspace: str, owner: str) -> None:
    with pytest.raises(ValueError, match="belongs to a workspace"):
        crypto.seal(b"plain", workspace=workspace, owner=owner)


JSON: st.SearchStrategy[JSONValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_sealed_json_comes_back_as_it_was(value: JSONValue) -> None:
    """Decomposed text, lone surrogates, U+0000 and the order of keys too: recordings must not be touched."""
    sealed = crypto.seal_json(value, workspace="acme", owner="rec_1")
    assert repr(crypto.unseal_json(sealed, workspace="acme", owner="rec_1")) == repr(value)


def test_what_is_not_json_is_not_sealed_as_json() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        crypto.seal_json(float("nan"), workspace="acme", owner="rec_1")
    with pytest.raises(TypeError):
        crypto.seal_json(b"bytes", workspace="acme", owner="rec_1")  # type: ignore[arg-type]


def test_digests_are_sha256() -> None:
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert crypto.digest("abc") == crypto.digest(b"abc") == abc
    assert crypto.digest("é") == crypto.digest("é".encode())


def test_tokens_are_long_distinct_and_stored_hashed() -> None:
    tokens = {crypto.new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(re.fullmatch(r"sbx_[A-Za-z0-9_-]{22}", token) for token in tokens)
    token = tokens.pop()
    assert crypto.hash_token(token) == crypto.hash_token(token)
    assert re.fullmatch(r"[0-9a-f]{64}", crypto.hash_token(token))
    assert crypto.hash_token(token) not in map(crypto.hash_token, tokens)
