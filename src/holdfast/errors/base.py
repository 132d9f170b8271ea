"""The root of the tree of errors: what every error has."""

from __future__ import annotations

from typing import Any, ClassVar


class HoldfastError(Exception):
    """Anything Holdfast refuses or fails to do."""

    code: ClassVar[str] = "ERROR"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str = "", *, hint: str | None = None, **details: Any) -> None:
        self.message = message or (type(self).__doc__ or self.code).strip().splitlines()[0]
        self.hint = self.default_hint if hint is None else hint
        self.details = details
        super().__init__(self.message)

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are no ordinary attribute: the error's own data.
        details = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.details)


def _rebuild(cls: type[HoldfastError], message: str, hint: str, details: dict[str, Any]) -> HoldfastError:
    return cls(message, hint=hint, **details)
