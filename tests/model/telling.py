"""What a receiver tells by itself: webhooks, in any order, late, more than once, and forged ones."""

from __future__ import annotations

from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import precondition

from console.kernel import webhooks
from effects import hooks
from tests.model.drawing import DEATHS, WHICH
from tests.model.judge import require
from tests.model.machine import Core, rule
from tests.model.outside import Message

SECRET = "whsec_" + "c2lnbmFsYm94LW1vZGVsLXNlY3JldC1vZi1hLXRlc3Q="
SECRET_NAME = "model-hooks"


class Telling(Core):
    @precondition(lambda self: bool(self.outside.messages))
    @rule(which=WHICH, dies=DEATHS)
    def webhook(self, which: int, dies: int | None) -> None:
        """One that has not come yet, in any order; or once more, where all have."""
        waiting = [one for one in self.outside.messages if not one.sent] or self.outside.messages
        message = waiting[which % len(waiting)]
        again = " again" if message.sent else ""
        self.step(
            "webhook",
            f"the receiver's webhook {message.number} about {self.named(message.effect_id)} comes{again}",
        )
        message.sent += 1
        taken = partial(self._take, message)
        errand = self.errand(
            "the web process with the webhook", taken, effect_id=message.effect_id, dies_before=dies
        )
        if errand.killed:
            # No answer: the sender comes again.
            message.sent -= 1

    def _take(self, message: Message) -> hooks.Taken:
        return hooks.take(self.setting.hook_id, self._signed(message), message.body)

    def _signed(self, message: Message) -> dict[str, str]:
        return webhooks.signed_headers([SECRET], f"msg_{message.number}", self.clock.now, message.body)

    @precondition(lambda self: bool(self.outside.messages))
    @rule(which=WHICH, how=st.sampled_from(["another body", "another id", "an old signature"]))
    def forged_webhook(self, which: int, how: str) -> None:
        """Refused, and nothing of it is kept."""
        message = self.outside.messages[which % len(self.outside.messages)]
        self.step("forged webhook", f"a webhook about {self.named(message.effect_id)} comes with {how}")
        headers = self._signed(message)
        body = message.body.replace(b"done", b"failed") + b" " if how == "another body" else message.body
        if how == "another id":
            headers[webhooks.ID] = "msg_of_somebody"
        if how == "an old signature":
            self.outside.pass_time(webhooks.TOLERANCE.total_seconds() + 2)
        errand = self.errand("a forged webhook", partial(hooks.take, self.setting.hook_id, headers, body))
        with self.told():
            require(isinstance(errand.error, webhooks.BadSignature), "a forged webhook was taken")
        self.judge.must_stay.update(self.judge.rows["effect"])
