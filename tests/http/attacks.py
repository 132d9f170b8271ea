"""The columns of the security matrix: kinds of attack, each of which says for every row what is sent and what must come
back. A kind is a generator of cells; decorated with `kind` it is part of the matrix, under the words of its name.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from holdfast.faces.http.auth import MAIN, MAX_BODY
from holdfast.operation import REGISTRY, Operation
from holdfast.route import ANY
from holdfast.schema import parameters
from holdfast.wire import MAX_DEPTH, plan_of
from holdfast.workspace.context import ROLES
from tests.http.bare import Request
from tests.http.matrix import ACTOR, BOB, OTHER, STRANGER, Row, Site

ACTING: Final = ("agent", "holder", "sender", "actor")  # arguments that say who acts, when something is written
EVENTS: Final = "text/event-stream"
EVIL: Final = "evil.example"
BASES: Final = {MAIN: "/", OTHER: f"/{OTHER}/"}


class Cell(NamedTuple):
    """One request that must not get through, and how it is refused.

    `code` may be several, with a bar between them. With `rest` the request has a connection of its own.
    """

    request: Request
    status: int
    code: str
    rest: tuple[bytes, ...] | None = None


Cells = Iterator[Cell]
Kind = Callable[[Site], Cells]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    """Make a generator of cells a column of the matrix."""
    KINDS[function.__name__.replace("_", " ")] = function
    return function


def unauthorized(request: Request) -> Cell:
    return Cell(request, 401, "UNAUTHORIZED")


def forbidden(request: Request) -> Cell:
    return Cell(request, 403, "FORBIDDEN")


def misdirected(request: Request) -> Cell:
    return Cell(request, 421, "MISDIRECTED")


# --- who asks --------------------------------------------------------------------------------------------------------


@kind
def no_token(site: Site) -> Cells:
    for row in (*site.rows, *site.heads):
        yield unauthorized(row.request.having("Authorization"))


@kind
def a_wrong_token(site: Site) -> Cells:
    right = site.running.token
    for row in (*site.rows, *site.heads):
        for secret in (f"hft_{'0' * 64}", right[:-1], f"{right}x", right.swapcase(), "*", right.removeprefix("hft_")):
            yield unauthorized(row.request.bearing(secret))


@kind
def a_malformed_authorization(site: Site) -> Cells:
    right = site.running.token
    forms = (
        "",
        "{0}",
        "Bearer",
        "Bearer{0}",
        "Bearer: {0}",
        "Bearer {0} {0}",
        'Bearer "{0}"',
        "Token {0}",
        "Basic {0}",
    )
    basic = f"Basic {b64encode(f'x:{right}'.encode()).decode()}"
    for row in site.rows:
        for given in (*(form.format(right) for form in forms), basic, f"Bearer {right}, Bearer {right}"):
            yield unauthorized(row.request.having("Authorization", given))


@kind
def a_token_in_the_address_or_a_cookie(site: Site) -> Cells:
    for row in site.rows:
        bare = row.request.having("Authorization")
        for name in ("token", "access_token", "authorization", "ticket"):
            yield unauthorized(bare.asking(f"{name}={site.running.token}"))
        yield unauthorized(bare.asking(f"ticket={site.running.token}").having("Accept", EVENTS))
        yield unauthorized(bare.having("Cookie", f"token={site.running.token}"))


@kind
def a_revoked_token(site: Site) -> Cells:
    secret = site.token("admin")
    site.revoke(secret)
    for row in (*site.rows, *site.heads):
        yield unauthorized(row.request.bearing(secret))


@kind
def a_token_of_another_workspace(site: Site) -> Cells:
    elsewhere = {MAIN: site.token("admin", workspace=OTHER), OTHER: site.token("admin", workspace=MAIN)}
    nowhere = site.token("admin", workspace="nowhere")
    for row in (*site.rows, *site.heads):
        if row.space is not None:
            yield forbidden(row.request.bearing(elsewhere[row.space]))
            yield forbidden(row.request.bearing(nowhere))
        if row.space == OTHER:  # whether there is such a workspace is nothing that this token may learn
            missing = row.request._replace(target=row.request.target.replace(OTHER, "missing", 1))
            yield forbidden(missing.bearing(nowhere))


@kind
def a_role_that_is_too_small(site: Site) -> Cells:
    secrets = {role: site.token(role) for role in ROLES}
    for row in (*site.rows, *site.heads):
        for role in ROLES[: ROLES.index(row.role)]:
            yield forbidden(row.request.bearing(secrets[role]))


@kind
def a_ticket_for_what_is_no_watch(site: Site) -> Cells:
    watches = {row.request.path for row in site.rows if row.streams}
    for row in site.rows:
        bare, base = row.request.having("Authorization").having("Accept"), BASES[row.space or MAIN]
        yield unauthorized(bare.asking(f"ticket={site.ticket(base)}"))
        yield unauthorized(row.request.bearing(site.ticket(base)))
        if row.request.path not in watches:
            yield unauthorized(bare.having("Accept", EVENTS).asking(f"ticket={site.ticket(base)}"))


@kind
def a_ticket_that_is_used_foreign_or_of_a_revoked_token(site: Site) -> Cells:
    secret = site.token("admin")
    orphans = {base: site.ticket(base, secret) for base in BASES.values()}
    site.revoke(secret)
    for row in site.rows:
        if row.streams:
            bare, base = row.request.having("Authorization"), BASES[row.space or MAIN]
            foreign = BASES[MAIN if row.space == OTHER else OTHER]
            used = site.ticket(base)
            assert site.client.send(bare.asking(f"ticket={used}")).status == 200
            for given in (used, site.ticket(foreign), orphans[base], "", "hfk_"):
                yield unauthorized(bare.asking(f"ticket={given}"))


# --- for whom --------------------------------------------------------------------------------------------------------


@kind
def the_header_of_another_actor(site: Site) -> Cells:
    bound = site.token("admin", actor=ACTOR)
    for row in site.rows:
        if row.op is not None:
            for other in (BOB, "bo%62", f"{ACTOR}2", ACTOR.title(), f"{ACTOR}%00", ""):
                yield forbidden(row.request.bearing(bound).having("X-Agent-ID", other))


def actor_arguments(row: Row) -> list[str]:
    """The arguments of a write that say who acts, under all their names."""
    if row.op is None or not row.writes:
        return []
    own = [each.name for each in parameters(row.op) if each.name in (*ACTING, row.op.route.names_actor)]
    return own + [alias.name for alias in row.op.route.aliases if alias.of in own]


def saying(request: Request, **more: Any) -> Request:
    """The request with more arguments in its body, which a DELETE may have too."""
    body = msgspec.json.decode(request.body or b"{}") | more
    return request.having("Content-Type", "application/json")._replace(body=msgspec.json.encode(body))


@kind
def an_argument_of_another_actor(site: Site) -> Cells:
    bound = site.token("admin", actor=ACTOR)
    for row in site.rows:
        for name in actor_arguments(row):
            for request in (row.request.bearing(bound), row.request.bearing(bound).having("X-Agent-ID")):
                yield forbidden(saying(request, **{name: BOB}))
                yield forbidden(saying(request, **{name: [BOB]}))
                request = saying(request)
                comma = b"," if len(request.body) > 2 else b""
                twice = request.body[:-1] + comma + f'"{name}":"{ACTOR}","{name}":"{BOB}"}}'.encode()
                yield Cell(request._replace(body=twice), 400, "INVALID")
                yield forbidden(request.asking(f"{name}={BOB}"))
                yield forbidden(request.asking("args=" + quote(msgspec.json.encode({name: BOB}))))


def in_txn(request: Request, op: str, args: dict[str, Any], branch: str = "then") -> Request:
    """A txn that would do this."""
    conditions = [] if branch == "then" else [{"if": "exists", "kind": "cell", "key": ["no", "such"]}]
    body = {"conditions": conditions, "then": [], branch: [{"op": op, "args": args}]}
    return request._replace(body=msgspec.json.encode(body))


@kind
def another_actor_inside_a_txn(site: Site) -> Cells:
    bound = site.token("admin", actor=ACTOR)
    for row in site.rows:
        for name in actor_arguments(row):
            assert row.op is not None
            txn = site.call("txn", BASES[row.space or MAIN]).bearing(bound)
            for branch in ("then", "otherwise"):
                yield forbidden(in_txn(txn, row.op.name, row.args | {name: BOB}, branch))
                yield forbidden(in_txn(txn.having("X-Agent-ID"), row.op.name, row.args | {name: BOB}, branch))


def holders_steps() -> Iterator[Operation[..., Any]]:
    """Every write that takes the token of what its domain grants."""
    return (op for op in REGISTRY.values() if op.writes and op.takes("token"))


@kind
def the_token_of_what_another_holds(site: Site) -> Cells:
    """A token proves freshness, never identity: the acting agent must be the holder, whatever its role."""
    free = [site.token(role) for role in ROLES[1:]]
    bound = [site.token(role, actor=BOB) for role in ROLES[1:]]
    for op in holders_steps():
        kind = "thread" if op.name.startswith("threads.") else None if op.held is None else op.held.kind
        held = {} if kind is None else site.holdings[kind]  # an item is in the arguments already
        step = {"status": "blocked"} if op.takes("status") else {}  # not the one that only asks who holds it
        request = site.call(op.name, **site.arguments[op.name] | held | step)
        refused = [request.bearing(secret).having("X-Agent-ID") for secret in bound]
        for secret in free:
            refused += [request.bearing(secret).having("X-Agent-ID", who) for who in (BOB, STRANGER)]
            for name in {"agent", "holder"} & {each.name for each in parameters(op)}:
                refused += [saying(request.bearing(secret), **{name: who}) for who in (BOB, STRANGER)]
        for each in refused:
            yield Cell(each, 403, "NOT_HOLDER|NOT_CLAIM_OWNER")


@kind
def the_fence_of_what_another_holds(site: Site) -> Cells:
    """Around every write: who acts under another name than the holder is not passed by the holder's token."""
    held = site.holdings
    fences = {
        "lock": f"{held['lock']['token']} {quote(held['lock']['name'])}",
        "cell": f"{held['cell']['token']} {quote(held['cell']['run'])}/{quote(held['cell']['cell'])}",
        "stash": f"{held['stash']['token']} {held['stash']['id']}",
    }
    free, bound = site.token("admin"), site.token("admin", actor=BOB)
    for row in (row for row in site.rows if row.writes and row.space == MAIN):
        for fence in fences.values() if row.op and row.op.name in ("cells.set", "txn") else (fences["lock"],):
            request = row.request.having("X-Fence", fence)
            for who in (BOB, STRANGER):
                yield Cell(request.bearing(free).having("X-Agent-ID", who), 403, "NOT_HOLDER")
            yield Cell(request.bearing(bound).having("X-Agent-ID"), 403, "NOT_HOLDER|FORBIDDEN")


@kind
def what_only_admins_may_say(site: Site) -> Cells:
    """`force`, and the arguments of which the table says so, in a call and inside a txn."""
    secrets = site.token("agent"), site.token("agent", actor=ACTOR)
    for op in REGISTRY.values():
        forced = {"force": True} if op.takes("force") else {}
        for name, value in {**op.route.admin_only, **forced}.items():
            more = {name: 0 if value is ANY else value}
            for secret in secrets:
                yield forbidden(saying(site.call(op.name).bearing(secret), **more))
                for branch in ("then", "otherwise"):
                    txn = site.call("txn").bearing(secret)
                    yield forbidden(in_txn(txn, op.name, site.arguments[op.name] | more, branch))


@kind
def an_operation_of_admins_inside_a_txn(site: Site) -> Cells:
    agent = site.token("agent")
    for base in BASES.values():
        for name in sorted(op.name for op in REGISTRY.values() if op.role == "admin"):
            for branch in ("then", "otherwise"):
                yield forbidden(in_txn(site.call("txn", base).bearing(agent), name, site.arguments[name], branch))


@kind
def a_txn_that_hides_what_it_does(site: Site) -> Cells:
    """One that cannot be read is refused whole, whatever else is in it; one inside another is none."""
    bound = site.token("agent", actor=ACTOR)
    theft = {"op": "tasks.claim", "args": site.arguments["tasks.claim"] | {"agent": BOB}}
    for base in BASES.values():
        for then in (
            [theft, {"op": 5}],
            [{"op": "txn", "args": {"conditions": [], "then": [theft]}}],
            [{"op": "tasks.claim", "args": [theft["args"]]}],
            [{"op": "Tasks.claim", "args": theft["args"]}],
            {"0": theft},
            theft,
        ):
            request = site.call("txn", base).bearing(bound)
            yield Cell(request._replace(body=msgspec.json.encode({"conditions": [], "then": then})), 400, "INVALID")


# --- from where ------------------------------------------------------------------------------------------------------


@kind
def a_foreign_host(site: Site) -> Cells:
    ip, port = site.host.split(":")
    evil = (EVIL, f"{EVIL}:{port}", f"{ip}:evil", ip, f"{ip}:1", f"{site.host}.{EVIL}", "", "*", "null")
    tricks = (f"x@{site.host}", f"{site.host},{EVIL}", f"http://{site.host}", f"{ip}:0{port}", f"{site.host}/")
    for row in (*site.rows, *site.heads, site.open_row):
        for host in evil[:2] if row.request.method == "HEAD" else (*evil, *tricks):
            yield misdirected(row.request.having("Host", host))


@kind
def no_host(site: Site) -> Cells:
    for row in (*site.rows, *site.heads, site.open_row):
        yield misdirected(row.request.having("Host"))
        yield misdirected(row.request.having("Host").having("X-Forwarded-Host", site.host))


def origins(site: Site) -> tuple[str, ...]:
    """Where requests must not come from."""
    ip, _ = site.host.split(":")
    near = (f"https://{site.host}", f"http://{site.host}.{EVIL}", f"http://{ip}", f"http://{site.host}/", site.host)
    return (f"http://{EVIL}", "null", "", "*", "file://", "http://localhost", *near)


@kind
def a_foreign_origin(site: Site) -> Cells:
    for row in (*site.rows, *site.heads):
        for origin in origins(site)[: 2 if row.request.method == "HEAD" else None]:
            yield forbidden(row.request.having("Origin", origin))


@kind
def a_preflight(site: Site) -> Cells:
    for row in site.rows:
        asked = row.request._replace(method="OPTIONS", body=b"").having("Access-Control-Request-Method", "POST")
        asked = asked.having("Access-Control-Request-Headers", "authorization")
        for origin in origins(site)[:2]:
            yield forbidden(asked.having("Authorization").having("Origin", origin))
        yield unauthorized(asked.having("Authorization").having("Origin", f"http://{site.host}"))
        yield Cell(asked.having("Origin", f"http://{site.host}"), 405, "METHOD_NOT_ALLOWED")


# --- with what -------------------------------------------------------------------------------------------------------


def with_bodies(site: Site) -> Iterator[Request]:
    """Every operation, with a body also where none is needed."""
    for row in site.rows:
        if row.op is not None:
            request = row.request.having("Content-Type", "application/json")
            yield request if request.body else request._replace(body=b"{}")


def of_the_main_workspace(site: Site) -> Iterator[Request]:
    """Half of them, for attacks that need a connection each: the other workspace is behind the same code."""
    return (request for request in with_bodies(site) if not request.target.startswith(BASES[OTHER]))


def bounds(site: Site) -> dict[tuple[str, str], int]:
    """How many bytes the body of each operation may have."""
    return {(row.request.method, row.request.target): row.op.route.body for row in site.rows if row.op is not None}


@kind
def a_body_that_says_it_is_no_json(site: Site) -> Cells:
    simple = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    near = ("text/plain;application/json", "text/json", "application/jsonp", "application/json, text/plain", "*/*", "")
    for request in with_bodies(site):
        yield Cell(request.having("Content-Type"), 415, "NOT_JSON")
        for given in (*simple, *near):
            yield Cell(request.having("Content-Type", given), 415, "NOT_JSON")


@kind
def a_body_that_announces_too_much(site: Site) -> Cells:
    known = bounds(site)
    for request in of_the_main_workspace(site):
        most = known[request.method, request.target]
        for length in (most + 1, 10 * most, 2**63):
            yield Cell(request.having("Content-Length", str(length))._replace(body=b""), 413, "TOO_LARGE", rest=())


@kind
def a_body_that_goes_on_without_a_length(site: Site) -> Cells:
    known = bounds(site)
    part = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    rest = (*[part] * (MAX_BODY // 0x100000), b"1\r\n \r\n0\r\n\r\n")
    for request in of_the_main_workspace(site):
        if known[request.method, request.target] > MAX_BODY:
            continue  # so much is more than a test needs to send
        yield Cell(request.having("Transfer-Encoding", "chunked")._replace(body=b""), 413, "TOO_LARGE", rest)


def nested(depth: int) -> bytes:
    """An array in an array, and so on."""
    return b"[" * depth + b"]" * depth


@kind
def a_body_that_is_too_deep(site: Site) -> Cells:
    for request in with_bodies(site):
        for depth in (MAX_DEPTH, 100_000):
            yield Cell(request._replace(body=b'{"value":' + nested(depth) + b"}"), 400, "INVALID")
        yield Cell(request._replace(body=b'{"value":' + b'{"a":[' * MAX_DEPTH), 400, "INVALID")


@kind
def a_query_that_is_too_deep(site: Site) -> Cells:
    """A value of any shape that is too deep for the store is refused as such."""
    for row in site.rows:
        if row.op is not None:
            free = min(plan_of(row.op.name).values, default="value")
            for depth in (MAX_DEPTH, 500, 2_000, 15_000):
                exact = quote(f'{{"{free}":{nested(depth).decode()}}}', safe="[]{}")
                request = row.request._replace(target=f"{row.request.path}?args={exact}", body=b"")
                yield Cell(request, 400, "INVALID|INVALID_VALUE")


@kind
def a_header_given_twice(site: Site) -> Cells:
    """Of two that differ neither counts, whichever comes first; and a request has one Host."""
    bound = site.token("admin", actor=ACTOR)
    for row in (*site.rows, site.open_row):
        request = row.request
        for hosts in ((site.host, EVIL), (EVIL, site.host), (site.host, site.host)):
            yield misdirected(request.having("Host", *hosts))
        if row != site.open_row:
            for both in both_ways(f"http://{site.host}", f"http://{EVIL}"):
                yield forbidden(request.having("Origin", *both))
            for both in both_ways(f"Bearer {site.running.token}", "Bearer wrong"):
                yield unauthorized(request.having("Authorization", *both))
        if row.op is not None:
            for both in both_ways(ACTOR, BOB):
                yield forbidden(request.bearing(bound).having("X-Agent-ID", *both))
            for both in both_ways("application/json", "text/plain"):
                yield Cell(request._replace(body=request.body or b"{}").having("Content-Type", *both), 415, "NOT_JSON")


def both_ways(one: str, other: str) -> tuple[tuple[str, str], ...]:
    """Two in either order."""
    return (one, other), (other, one)


@kind
def several_things_of_which_the_first_is_told(site: Site) -> Cells:
    """Host, Origin, token, workspace, role, body: in this order, and nothing is read of what is refused before."""
    elsewhere, reader = site.token("admin", workspace="nowhere"), site.token("read")
    for row in site.rows:
        if row.writes:
            most = MAX_BODY if row.op is None else row.op.route.body
            steps = [Cell(row.request.having("Content-Length", str(most + 1))._replace(body=b""), 413, "TOO_LARGE")]
            steps.append(forbidden(steps[-1].request.bearing(reader)))
            steps.append(forbidden(steps[-1].request.bearing(elsewhere)))
            steps.append(unauthorized(steps[-1].request.bearing("wrong")))
            steps.append(forbidden(steps[-1].request.having("Origin", "null")))
            steps.append(misdirected(steps[-1].request.having("Host", EVIL)))
            yield from (cell._replace(rest=()) for cell in steps)
