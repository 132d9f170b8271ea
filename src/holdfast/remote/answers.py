"""Answers and errors of a server as what they were there: the same types, the same classes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import httpx
import msgspec

from holdfast import errors
from holdfast.faces.http import refusals
from holdfast.faces.http.codec import parsed, plan_of
from holdfast.kernel.values import MAX_DEPTH
from holdfast.kernel.wire import from_wire
from holdfast.ops import Operation
from holdfast.schemas import is_page, result_type
from holdfast.types.base import Page
from holdfast.types.tasks import ImportProblem, Task
from holdfast.types.txn import TxnResult

_TIMES: Final = {"since", "until", "claimed_at"}  # of the data of errors
_DEEP: Final = MAX_DEPTH + 16  # a value may be as deep as one can be, and lies inside an answer
_CLASSES: Final = {
    each.code: each
    for each in reversed([*vars(errors).values(), *vars(refusals).values()])
    if isinstance(each, type) and issubclass(each, errors.HoldfastError)
}


def result_of(op: Operation[..., Any], response: httpx.Response) -> Any:
    """What the operation answered."""
    result = item_of(op, response.content)
    if not isinstance(result, list) or not is_page(op.name):
        return result
    page: Page[Any] = Page(result)
    page.cursor = response.headers.get("x-next-cursor")
    total = response.headers.get("x-total-count")
    page.total = None if total is None else int(total)
    return page


def item_of(op: Operation[..., Any], content: bytes) -> Any:
    """An answer, or one item of a stream, from its JSON."""
    kind = result_type(op.name)
    if not plan_of(op.name).free:
        return msgspec.json.decode(content, type=kind)
    return msgspec.convert(from_wire(msgspec.json.decode(content), _DEEP), kind)


def typed_txn(answer: TxnResult, given: dict[str, Any]) -> TxnResult:
    """The results of a txn as the types of the operations that it ran."""
    ran = given["then"] if answer.succeeded else given.get("otherwise", ())
    results = [msgspec.convert(result, result_type(op.op)) for op, result in zip(ran, answer.results, strict=True)]
    return TxnResult(answer.succeeded, results)


def failure(content: bytes, status: int) -> errors.HoldfastError:
    """The error that a server told, of the class that it was."""
    try:
        told = parsed(content)
        if not isinstance(told, dict):
            raise ValueError("no object")
    except ValueError:
        return errors.Unavailable(f"the server answered {status}, and not as Holdfast does")
    cls = _CLASSES.get(told.get("code", ""), errors.HoldfastError)
    details = {name: _detail(name, value) for name, value in told.get("details", {}).items()}
    return cls(told.get("error", ""), hint=told.get("hint", ""), **details)


def type_details(op: Operation[..., Any], error: errors.HoldfastError) -> None:
    """What an error carries of records, as the types they are in process."""
    types: dict[str, Any] = {} if op.name.startswith("cycles.") else {"problems": list[ImportProblem]}
    if op.name.startswith("tasks."):
        types["value"] = Task
    for name, kind in types.items():
        if isinstance(error.details.get(name), dict | list):
            error.details[name] = msgspec.convert(error.details[name], kind)


def _detail(name: str, value: Any) -> Any:
    value = from_wire(value, _DEEP)
    if name in _TIMES and isinstance(value, str):
        return msgspec.convert(value, datetime)
    return value
