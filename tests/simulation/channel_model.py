"""The laws of channels as plain Python, on top of the model of queues: S4. A channel is a list and cursors."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import errors
from holdfast.types import Page, as_time
from holdfast.types.stashes import ChannelMessage, StashType, Subscription
from tests.conformance.model_base import ChannelRow, StashRow
from tests.simulation.queue_model import QueueModel
from tests.simulation.stash_model import StashId


class ChannelModel(QueueModel):
    """A workspace with channels as its users imagine it."""

    def _channel(self, id: StashId) -> tuple[str, ChannelRow]:
        row = self._stash(id)
        if row.type != "channel":
            raise errors.InvalidStashType()
        return row.id, self.state.channels.get(row.id) or ChannelRow()

    @staticmethod
    def _check_value(type: StashType, value: Any) -> None:
        if type != "channel":
            QueueModel._check_value(type, value)
        elif value is not None and (not isinstance(value, dict) or {*value} - {"keep"}):
            raise errors.InvalidValue()

    def channels_publish(self, id: StashId, value: Any) -> int:
        """What is beyond `keep` goes."""
        own, channel = self._channel(id)
        first, last = channel.first, channel.last
        channel.messages.append(ChannelMessage(own, last + 1, self.actor, as_time(self.now), value))
        del channel.messages[: -(self.state.stashes[own].value or {}).get("keep", 10_000)]
        self.state.channels[own] = channel
        ends = {"last": [last, last + 1]} | ({} if channel.first == first else {"first": [first, channel.first]})
        self.emit("channel", "", own, "publish", {**ends, "bytes": len(msgspec.msgpack.encode(value))})
        return channel.last

    def channels_subscribe(self, id: StashId, subscriber: str, after: int | None = None) -> Subscription:
        own, channel = self._channel(id)
        if subscriber not in channel.cursors:
            if after is not None and not 0 <= after <= channel.last:
                raise errors.Invalid()
            channel.cursors[subscriber] = channel.last if after is None else after or channel.first - 1
            self.state.channels[own] = channel
            self._moved(own, "subscribe", subscriber, None, channel.cursors[subscriber])
        return self._subscription(own, channel, subscriber)

    def _moved(self, id: str, op: str, subscriber: str, old: int | None, new: int | None) -> None:
        self.emit("channel", "", id, op, {"subscriber": subscriber, "cursor": [old, new]})

    @staticmethod
    def _subscription(id: str, channel: ChannelRow, subscriber: str) -> Subscription:
        cursor = channel.cursors[subscriber]
        lost = max(channel.first - 1 - cursor, 0)
        return Subscription(id, subscriber, cursor, channel.last - cursor - lost, lost)

    def channels_ack(self, id: StashId, number: int, subscriber: str) -> int:
        """Forward only."""
        own, channel = self._channel(id)
        if subscriber not in channel.cursors:
            raise errors.NotFound()
        if not 0 <= number <= channel.last:
            raise errors.Invalid()
        old = channel.cursors[subscriber]
        if number > old:
            channel.cursors[subscriber] = number
            self._moved(own, "ack", subscriber, old, number)
        return channel.cursors[subscriber]

    def channels_unsubscribe(self, id: StashId, subscriber: str) -> bool:
        own, channel = self._channel(id)
        old = channel.cursors.pop(subscriber, None)
        if old is not None:
            self._moved(own, "unsubscribe", subscriber, old, None)
        return old is not None

    def channels_list(self, id: StashId, after: int = 0) -> Page[ChannelMessage]:
        _, channel = self._channel(id)
        if 0 < after < channel.first - 1:
            raise errors.MessagesLost()
        return Page(message for message in channel.messages if message.number > after)

    def channels_subscribers(self, id: StashId) -> Page[Subscription]:
        own, channel = self._channel(id)
        return Page(self._subscription(own, channel, each) for each in sorted(channel.cursors))

    def _erase(self, row: StashRow, op: str) -> None:
        """S8: messages and cursors go with their channel, and what the log said of them."""
        if self.state.channels.pop(row.id, None) is not None:
            self._blank("channel", row.id, op)
        super()._erase(row, op)
