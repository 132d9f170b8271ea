"""Every address of a server against everything that must not get through, and nothing changes.

The matrix is generated: its rows are in `matrix`, its columns in `attacks`. After each kind of attack what is stored is
what it was. The control: the same requests with everything right succeed, so none of them was refused because it made
no sense anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import msgspec
import pytest

from holdfast.faces.http.auth import MAIN, MAX_BODY
from holdfast.wire import MAX_DEPTH
from holdfast.workspace.context import ROLES
from tests.http.attacks import BASES, KINDS, Cell, actor_arguments, forbidden, in_txn, nested, saying
from tests.http.bare import Request
from tests.http.matrix import ACTOR, BOB, STRANGER, Row, Site

REFUSALS: Final = {401, 403, 413, 415, 421}  # of the matrix; 400 has other reasons too


# --- the matrix ------------------------------------------------------------------------------------------------------


def failing(site: Site, cell: Cell) -> list[str]:
    """What is wrong with the answer to a cell."""
    once = cell.rest is not None
    answer = site.client.send_once(cell.request, *cell.rest or ()) if once else site.client.send(cell.request)
    found = [*answer.flaws(site.secrets)]
    if answer.status != cell.status:
        found.append(f"{answer.status} {answer.code}, not {cell.status} {cell.code}")
    elif cell.request.method == "HEAD" and answer.body:
        found.append("a body for a HEAD")
    elif cell.request.method != "HEAD" and answer.code not in cell.code.split("|"):
        found.append(f"{answer.code}, not {cell.code}")
    head = "; ".join(f"{name}: {value[:30]}" for name, value in cell.request.headers)
    return [f"{each}: {cell.request.method} {cell.request.target[:80]} ({head})" for each in found]


@pytest.mark.parametrize("name", KINDS)
def test_every_address_refuses(site: Site, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = site.state()
    cells, wrong = 0, []
    for cell in KINDS[name](site):
        cells += 1
        wrong += failing(site, cell)
    with capsys.disabled():
        print(f"\n  {name}: {cells} cells, {len(wrong)} wrong")
    assert not wrong, f"{len(wrong)} of {cells} cells, such as\n" + "\n".join(wrong[:: max(1, len(wrong) // 5)])
    assert site.state() == before
    assert cells > 0


# --- roles and actors -------------------------------------------------------------------------------------------------


def asked(site: Site, row: Row) -> Iterator[tuple[Request, bool]]:
    """The request of a row with every role, by a token that is bound to ACTOR or to nobody, as ACTOR, as another agent
    and as one that nobody knows, said in the header and in the arguments; and whether the table lets it through."""
    for role, bound in product(ROLES, (False, True)):
        enough = ROLES.index(role) >= ROLES.index(row.role)
        request = row.request.bearing(site.tokens_of[role, bound])
        for who in (ACTOR, BOB, STRANGER):
            itself = who == ACTOR or not bound
            yield request.having("X-Agent-ID", who), enough and itself
            for name in actor_arguments(row):
                yield saying(request.having("X-Agent-ID"), **{name: who}), enough and itself


def test_every_operation_is_for_the_roles_and_actors_that_the_table_names(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = site.copied("roles")
    calls = [pair for row in site.rows if row.op is not None and row.space == MAIN for pair in asked(site, row)]
    before = site.state()
    wrong = [each for request, passes in calls if not passes for each in failing(site, forbidden(request))]
    assert not wrong, wrong[:5]
    assert site.state() == before
    for request, passes in calls:
        if passes:  # what became of the records it names does not matter: it was let through to them
            answer = site.client.send(request._replace(target=copy + request.target.removeprefix("/")))
            assert (answer.status, answer.code) != (403, "FORBIDDEN"), request
            assert answer.status not in REFUSALS - {403}, request
            assert answer.status < 500, (request, answer)
    with capsys.disabled():
        print(f"\n  roles and actors: {len(calls)} calls, {sum(passes for _, passes in calls)} of them let through")


# --- the control -----------------------------------------------------------------------------------------------------


def right(site: Site, row: Row, secret: str, base: str | None = None) -> Request:
    """The request of a row as its owner would send it, with a token that is good for this and no more."""
    request = row.request.bearing(secret).having("Origin", f"http://{site.host}")
    if request.body:
        request = request.having("Content-Type", "application/json; charset=utf-8")
    return request if base is None else request._replace(target=base + request.target.removeprefix("/"))


def himself(row: Row) -> dict[str, str]:
    """The argument that says who acts, if there is one, of somebody who acts for himself."""
    return {name: ACTOR for name in actor_arguments(row)[:1]}


def test_the_control_what_reads_is_let_in_with_everything_right(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    weakest = {role: site.token(role, actor=ACTOR) for role in ROLES}
    own = {space: site.token("admin", workspace=space) for space in BASES}
    reading = [row for row in (*site.rows, *site.heads) if not row.writes]
    before = site.state()
    for row in reading:
        secrets = [weakest[row.role]] if row.space is None else [weakest[row.role], own[row.space]]
        for secret in secrets:
            answer = site.client.send(right(site, row, secret))
            assert answer.status in (200, 201), (row.request, answer)
            assert [*answer.flaws(site.secrets)] == [], row.request
            assert not (row.request.method == "HEAD" and answer.body), row.request
    assert site.client.send(site.open_row.request.having("Authorization")).body == b'{"status":"ok"}'
    assert site.state() == before
    with capsys.disabled():
        print(f"\n  control: {len(reading)} requests that read, all let in")


def test_the_control_every_write_succeeds_with_everything_right(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    weakest = {role: site.token(role, actor=ACTOR) for role in ROLES}
    writing = [row for row in site.rows if row.writes and row.space == MAIN]
    changed = 0
    for number, row in enumerate(writing):
        base = site.copied(f"copy-{number}")
        before = revision(site, base)
        request = right(site, row, weakest[row.role], base)
        if himself(row):
            request = saying(request, **himself(row))
        answer = site.client.send(request)
        assert answer.status in (200, 201, 204), (request, answer)
        assert [*answer.flaws(site.secrets)] == [], request
        changed += revision(site, base) > before
    with capsys.disabled():
        print(f"\n  control: {len(writing)} requests that write, all succeed, {changed} with an event")
    assert changed > 0.8 * len(writing), "a refused request would have been noticed"


def revision(site: Site, base: str) -> int:
    """How far a workspace is."""
    answer = site.client.send(Request("GET", f"{base}api/revision", site.right))
    found: int = msgspec.json.decode(answer.body)["revision"]
    return found


def test_the_control_a_txn_may_do_what_its_token_may(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    weakest = {role: site.token(role, actor=ACTOR) for role in ROLES}
    writing = [row for row in site.rows if row.writes and row.space == MAIN and row.op and row.op.name != "txn"]
    done = 0
    for number, row in enumerate(writing):
        assert row.op is not None
        txn = site.call("txn", site.copied(f"txn-{number}")).bearing(weakest[row.role])
        answer = site.client.send(in_txn(txn, row.op.name, row.args | himself(row)))
        assert answer.status not in REFUSALS, (row.op.name, answer)
        done += answer.status == 200
    with capsys.disabled():
        print(f"\n  control: {len(writing)} writes inside a txn, {done} succeed")
    assert done > 0.8 * len(writing)


def test_the_control_a_body_may_be_as_large_and_as_deep_as_the_limits_say(site: Site) -> None:
    create, base = site.call("tasks.create", site.copied("large")), "/large/"
    full = create._replace(body=create.body + b" " * (MAX_BODY - len(create.body)))
    assert site.client.send(full).status == 201
    pieces = [b"%x\r\n%s\r\n" % (len(part), part) for part in (full.body[:1000], full.body[1000:])]
    chunked = create._replace(body=b"").having("Transfer-Encoding", "Chunked")
    assert site.client.send_once(chunked, *pieces, b"0\r\n\r\n").status == 201
    deep = site.call("cells.set", base)._replace(body=b'{"value":' + nested(MAX_DEPTH - 1) + b"}")
    assert site.client.send(deep).code == "INVALID_VALUE", "not the body is too deep, the value is"
    assert site.client.send(deep._replace(body=b'{"value":' + nested(100) + b"}")).status == 200
