"""A server that speaks TLS: a certificate of its own that clients pin, or files of yours; what cannot be is told."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import holdfast
from holdfast import errors
from holdfast.faces.http import listener
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.server import Server
from holdfast.remote import protocol
from tests.http.inside import serving, token_of
from tests.http.running import PATIENCE, Running, command


def connected(server: Server, verify: str | bool, url: str = "") -> holdfast.RemoteWorkspace:
    return holdfast.connect(url or server.url, token=token_of(server), actor="ann", verify=verify)


def made(folder: Path, *hosts: str) -> tuple[Path, Path]:
    """A certificate and its key."""
    folder.mkdir(exist_ok=True)
    return listener.certificate(folder, hosts)


async def write_and_read(ws: holdfast.RemoteWorkspace, cell: str) -> Any:
    async with ws.aio.watch() as watch:
        await ws.aio.cells.set("run", cell, 1)
        event = await anext(watch)
    return event.id, (await ws.aio.cells.get("run", cell)).value


def test_a_certificate_is_made_once_kept_private_and_pinned_by_clients(tmp_path: Path) -> None:
    before: dict[str, bytes] = {}
    for number in range(2):
        with serving(tmp_path, tls_auto=True) as server:
            files = sorted((tmp_path / "tls").iterdir())
            assert [path.name for path in files] == ["cert.pem", "key.pem"]
            assert [path.stat().st_mode & 0o777 for path in (tmp_path / "tls", *files)] == [0o700, 0o600, 0o600]
            now = {path.name: path.read_bytes() for path in files}
            assert now == (before or now)
            before = now
            assert server.url.startswith("https://127.0.0.1:")
            for url in (server.url, f"https://localhost:{server.port}"):
                with connected(server, str(files[0]), url) as ws, ws.watch() as watch:
                    cell = f"{number} {url}"
                    ws.cells.set("run", cell, 1)
                    assert next(watch).id == cell
                    assert asyncio.run(write_and_read(ws, f"{cell} again")) == (f"{cell} again", 1)


def test_a_process_says_which_certificate_to_trust(tmp_path: Path) -> None:
    running = Running(tmp_path / "store", "--tls", "auto")
    try:
        cert = tmp_path / "store" / "tls" / "cert.pem"
        with holdfast.connect(running.url, token=running.token, actor="ann", verify=str(cert)) as ws:
            assert ws.cells.set("run", "cell", 1) == 1
        assert running.stop() == 0
        assert running.process.stdout is not None
        assert f"the certificate to trust is {cert}\n" in running.process.stdout.readlines()
    finally:
        running.end()


@pytest.mark.parametrize("trusting", ["nobody", "another"])
def test_a_client_that_does_not_trust_the_certificate_sends_nothing_and_says_why(
    tmp_path: Path, trusting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "PAUSE", 0.001)
    verify = True if trusting == "nobody" else str(made(tmp_path / "other")[0])
    with serving(tmp_path / "store", tls_auto=True) as server, connected(server, verify) as ws:

        async def write() -> None:
            await ws.aio.cells.set("run", "cell", 1)

        async def read() -> None:
            await ws.aio.cells.get("run", "cell")

        async def watch() -> None:
            await anext(ws.aio.watch())

        attempts: list[Callable[[], Any]] = [
            lambda: ws.cells.set("run", "cell", 1),
            lambda: ws.cells.get("run", "cell"),
            lambda: ws.watch(),
            *(lambda call=call: asyncio.run(call()) for call in (write, read, watch)),
        ]
        for attempt in attempts:
            with pytest.raises(errors.Unreachable, match="certificate"):
                attempt()
        with connected(server, str(server.certificate[0]) if server.certificate else True) as trusted:
            assert trusted.revision == 0


def test_who_speaks_another_language_than_the_server_is_told_and_disturbs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "PAUSE", 0.001)
    with serving(tmp_path, tls_auto=True) as server, connected(server, str(tmp_path / "tls" / "cert.pem")) as good:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/healthz")
        with connected(server, True, f"http://127.0.0.1:{server.port}") as plain:
            with pytest.raises(errors.Unreachable):
                plain.cells.get("run", "cell")
            with pytest.raises(errors.Unavailable):
                plain.cells.set("run", "cell", 1)
        assert good.revision == 0
    with serving(tmp_path / "plain") as server, connected(server, False, f"https://127.0.0.1:{server.port}") as secure:
        with pytest.raises(errors.Unreachable):
            secure.cells.set("run", "cell", 1)
        with connected(server, True) as good:
            assert good.revision == 0


def accepted(cert: Path, port: int, name: str) -> bool:
    """Whether a client that calls the server by this name trusts it."""
    context = ssl.create_default_context(cafile=str(cert))
    try:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as raw,
            context.wrap_socket(raw, server_hostname=name),
        ):
            return True
    except ssl.SSLCertVerificationError:
        return False


def test_a_certificate_is_made_anew_when_the_server_gets_another_name(tmp_path: Path) -> None:
    cert = tmp_path / "tls" / "cert.pem"
    seen: list[bytes] = []
    for hosts in ((), ("one.example:4653",), ("one.example:4653", "two.example:443"), ("two.example:443",)):
        with serving(tmp_path, tls_auto=True, allow_hosts=hosts) as server:
            seen.append(cert.read_bytes())
            assert accepted(cert, server.port, "127.0.0.1")
            assert accepted(cert, server.port, socket.gethostname())
            assert all(accepted(cert, server.port, host.partition(":")[0]) for host in hosts)
            assert not accepted(cert, server.port, "three.example")
    assert len({*seen}) == 3
    assert seen[2] == seen[3]  # a name too many does no harm


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("192.0.2.7:4653", "192.0.2.7"),
        ("[2001:db8::7]:4653", "2001:db8::7"),
        ("named.example", "named.example"),
    ],
)
def test_a_certificate_is_good_for_every_form_of_an_allowed_host(tmp_path: Path, host: str, name: str) -> None:
    with serving(tmp_path, tls_auto=True, allow_hosts=(host,)) as server:
        assert accepted(tmp_path / "tls" / "cert.pem", server.port, name)


def test_an_allowed_host_that_cannot_be_in_a_certificate_is_refused_if_at_all_in_plain_words(tmp_path: Path) -> None:
    with suppress(errors.Invalid):
        Server(Settings(folder=tmp_path, tls_auto=True, allow_hosts=("bücher.example:4653",)))


def test_a_certificate_that_runs_out_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as shorter:
        shorter.setattr(listener, "LIFE", timedelta(days=29))
        old = made(tmp_path)[0].read_bytes()
    new = made(tmp_path)[0].read_bytes()
    assert new != old
    assert made(tmp_path)[0].read_bytes() == new


def test_a_certificate_of_yours_is_used(tmp_path: Path) -> None:
    cert, key = made(tmp_path / "mine")
    with (
        serving(tmp_path / "store", tls_cert=cert, tls_key=key) as server,
        connected(server, str(cert)) as ws,
    ):
        assert asyncio.run(write_and_read(ws, "cell")) == ("cell", 1)
        assert not (tmp_path / "store" / "tls").exists()


def test_with_a_certificate_it_listens_beyond_this_machine(tmp_path: Path) -> None:
    with serving(tmp_path, host="0.0.0.0", tls_auto=True) as server:
        assert server.url == f"https://{socket.gethostname()}:{server.port}"
        with connected(server, str(tmp_path / "tls" / "cert.pem"), f"https://127.0.0.1:{server.port}") as ws:
            assert ws.revision == 0


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_client_is_told_which_file_it_cannot_trust(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "pinned.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises((errors.HoldfastError, OSError), match=r"pinned\.pem"):
        holdfast.connect("https://127.0.0.1:1", token="t", verify=str(file))


def refused(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a server that does not start, and what it says."""
    started = [*command(folder), "--port", "0", *arguments]
    # Without a terminal, at which a passphrase could be asked for.
    with subprocess.Popen(
        started,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        if told := process.stdout.readline():
            process.kill()
            raise AssertionError(f"it says: {told}")
        said = process.communicate(timeout=PATIENCE)[1]
    assert "Traceback" not in said, said
    return process.returncode, said


def encrypted(key: Path) -> None:
    secret = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
    )


SPOILED: dict[str, Callable[[Path, Path], Any]] = {
    "no certificate there": lambda cert, key: cert.unlink(),
    "no key there": lambda cert, key: key.unlink(),
    "no certificate in it": lambda cert, key: cert.write_text("nothing"),
    "no key in it": lambda cert, key: key.write_text("nothing"),
    "a key of another": lambda cert, key: key.write_bytes(made(key.parent / "other")[1].read_bytes()),
    "a key with a passphrase": lambda cert, key: encrypted(key),
    "a folder": lambda cert, key: key.rename(key.with_suffix(".old")).with_suffix(".pem").mkdir(),
}


@pytest.mark.parametrize("how", SPOILED)
def test_files_of_yours_that_cannot_be_used_are_told_when_it_starts(tmp_path: Path, how: str) -> None:
    cert, key = made(tmp_path / "mine")
    SPOILED[how](cert, key)
    code, said = refused(tmp_path / "store", "--tls-cert", str(cert), "--tls-key", str(key))
    assert code in {1, 16}
    assert str(cert) in said or str(key) in said


@pytest.mark.parametrize("how", ["no certificate in it", "no key in it", "a key of another", "no names in it"])
def test_a_certificate_of_its_own_that_was_spoiled_is_mended_or_told(tmp_path: Path, how: str) -> None:
    """Either is good; what is not is a server that starts and nobody can connect to, or a traceback."""
    cert, key = made(tmp_path)
    if how == "no names in it":
        cert.write_bytes(nameless(key))
    else:
        SPOILED[how](cert, key)
    with suppress(errors.HoldfastError):
        server = Server(Settings(folder=tmp_path, port=0, tls_auto=True))
        assert server.certificate is not None
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*server.certificate)


def nameless(key: Path) -> bytes:
    """A certificate without a name that it is good for."""
    secret = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(secret, ec.EllipticCurvePrivateKey)
    own = x509.Name([])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(own, own, secret.public_key(), x509.random_serial_number())
    signed = builder.not_valid_before(now).not_valid_after(now + listener.LIFE).sign(secret, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def test_where_nobody_shows_a_certificate_none_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("loaded in vain, and slowly")

    monkeypatch.setattr(ssl, "create_default_context", load)
    with serving(tmp_path / "store") as server, connected(server, True) as ws:
        ws.cells.set("run", "cell", 1)
        assert ws.cells.get("run", "cell").value == 1
