"""N1: TLS and logins as the engines' own clients have them, against real servers and certificates made for the test.

The PostgreSQL of the tests is built without TLS, so a proxy of ours ends it in front of the server, as poolers do.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import nkeys  # type: ignore[import-untyped]
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.replication.jetstream import JetStreamLog
from holdfast.replication.log import START
from holdfast.replication.postgres import PostgresLog
from tests.worlds.nats import NatsCluster
from tests.worlds.postgres import PostgresServer, shared_server

PASSWORD = "s3cret-p4ssw0rd"


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    cert: Path
    key: Path


def certified(folder: Path, name: str) -> Pair:
    """A certificate that signs itself, for this machine as server and as client."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        x509.CertificateBuilder(own, own, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files.cert.write_bytes(made.public_bytes(pem))
    files.key.write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    return files


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine that runs the test."""
    for name in [name for name in os.environ if name.startswith(("NATS_", "PG"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Ends servers and logs."""
    with ExitStack() as stack:
        yield stack


def nats_server(stack: ExitStack, settings: str) -> NatsCluster:
    """One server."""
    server = NatsCluster(1, settings=settings)
    stack.callback(server.remove)
    return server


def reached(url: str) -> int:
    """The end of a new log there. Raises Unreachable."""
    with closing(JetStreamLog(f"{url}?sync=always", f"w-{os.urandom(4).hex()}", create=True)) as log:
        return log.head()


# --- NATS ------------------------------------------------------------------------------------------------------------


def test_n1_nats_over_tls_with_a_password_trusts_the_named_certificate_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    ours, theirs = certified(tmp_path, "ours"), certified(tmp_path, "theirs")
    server = nats_server(
        stack,
        f'tls {{ cert_file: "{ours.cert}", key_file: "{ours.key}", timeout: 20 }}\n'
        f"authorization {{ user: me, password: {PASSWORD} }}",
    )
    monkeypatch.setenv("NATS_USER", "me")
    monkeypatch.setenv("NATS_PASSWORD", PASSWORD)
    addresses = [server.url, server.url.replace("nats://", "tls://")]
    for url in addresses:
        with pytest.raises(errors.Unreachable, match=r"(?i)certificate verify failed"):
            reached(url)
    monkeypatch.setenv("NATS_CA", str(theirs.cert))
    with pytest.raises(errors.Unreachable, match=r"(?i)certificate verify failed"):
        reached(addresses[1])
    monkeypatch.setenv("NATS_CA", str(ours.cert))
    for url in addresses:
        assert reached(url) == START
    folder = tmp_path / "node"
    with holdfast.open(f"{addresses[1]}/team?sync=always", folder=folder, actor="ann", create=True) as ws:
        ws.cells.set("run", "cell", 1)
    assert PASSWORD not in (folder / "log.url").read_text()
    with holdfast.open(folder, actor="ann") as ws:
        assert ws.using(at_least="latest").cells.get("run", "cell").value == 1
    monkeypatch.setenv("NATS_PASSWORD", "another")
    with pytest.raises(errors.LogRefused, match=r"(?i)authorization violation") as refusal:
        reached(addresses[1])
    assert not refusal.value.retryable
    assert "NATS_CREDS, NATS_NKEY, NATS_USER and NATS_PASSWORD, or NATS_TOKEN" in refusal.value.hint


def test_n1_a_nats_server_that_asks_for_a_certificate_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    ours, mine = certified(tmp_path, "ours"), certified(tmp_path, "mine")
    server = nats_server(
        stack,
        f'tls {{ cert_file: "{ours.cert}", key_file: "{ours.key}", timeout: 20\n'
        f'ca_file: "{mine.cert}", verify: true }}',
    )
    monkeypatch.setenv("NATS_CA", str(ours.cert))
    with pytest.raises(errors.Unreachable):
        reached(server.url)
    monkeypatch.setenv("NATS_CERT", str(mine.cert))
    monkeypatch.setenv("NATS_KEY", str(mine.key))
    assert reached(server.url) == START


class Identity:
    """A name of NATS's own kind: a key pair that signs claims."""

    def __init__(self, kind: int) -> None:
        self.seed: bytes = nkeys.encode_seed(os.urandom(32), kind)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self._pair.public_key.decode()

    def sign(self, subject: str, facts: dict[str, object]) -> str:
        """Claims about a subject, as a token."""
        claims = {"jti": os.urandom(8).hex(), "iat": 1_700_000_000, "iss": self.public, "sub": subject, "nats": facts}
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in (head, {**claims, "name": "test"}))
        return f"{signed}.{_encoded(self._pair.sign(signed.encode()))}"


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_n1_a_credentials_file_of_nats_logs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    """`NATS_CREDS`: a user signed by an account that an operator signed, as NATS's tools make them."""
    operator, system, account = (
        Identity(kind) for kind in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT)
    )
    user, stranger = Identity(nkeys.PREFIX_BYTE_USER), Identity(nkeys.PREFIX_BYTE_ACCOUNT)
    names = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
    limits: dict[str, object] = {**dict.fromkeys(names, -1), "wildcards": True}
    stores = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
    accounts = {
        each.public: operator.sign(each.public, {"type": "account", "version": 2, "limits": limits | more})
        for each, more in ((system, {}), (account, stores))
    }
    preloaded = "\n".join(f"{public}: {token}" for public, token in accounts.items())
    server = nats_server(
        stack,
        f"operator: {operator.sign(operator.public, {'type': 'operator', 'version': 2})}\n"
        f"system_account: {system.public}\nresolver: MEMORY\nresolver_preload {{\n{preloaded}\n}}",
    )
    for signer, fits in ((stranger, False), (account, True)):
        rights = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}
        file = tmp_path / f"{fits}.creds"
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{signer.sign(user.public, rights)}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        monkeypatch.setenv("NATS_CREDS", str(file))
        if fits:
            assert reached(server.url) == START
        else:
            with pytest.raises(errors.LogRefused, match=r"(?i)authorization violation"):
                reached(server.url)


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(stack: ExitStack) -> PostgresServer:
    """A server with a workspace `first`, that lets the role `fleet` in with a password, to what the page says."""
    rules = Path(tempfile.mkstemp(prefix="hf-hba-")[1])
    stack.callback(rules.unlink)
    rules.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
    rules.chmod(0o644)  # the server is another user
    server = PostgresServer(f"hba_file={rules}")
    stack.callback(server.remove)
    with closing(PostgresLog(server.url, "first", create=True)) as log:
        assert log.head() == START
    with psycopg.connect(server.url) as connection:
        connection.execute(f"CREATE ROLE fleet LOGIN PASSWORD '{PASSWORD}'")
        connection.execute("GRANT USAGE ON SCHEMA holdfast TO fleet")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO fleet")
    return server


def test_the_rights_that_the_page_names_suffice_for_another_workspace(
    guarded: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    url = f"{guarded.url.replace('user=postgres', 'user=fleet')}&workspace=second"
    with holdfast.open(url, folder=tmp_path / "node", actor="ann", create=True) as ws:
        assert ws.cells.increment("run", "cell") == 1
    with psycopg.connect(guarded.url) as connection:
        connection.execute("REVOKE INSERT ON ALL TABLES IN SCHEMA holdfast FROM fleet")
    with holdfast.open(tmp_path / "node", actor="ann", patience=1) as ws:
        assert ws.using(at_least="latest").cells.get("run", "cell").value == 1
        with pytest.raises(errors.LogRefused, match="permission denied") as refusal:
            ws.cells.increment("run", "cell")
    assert "the rights that docs/engines.md names" in refusal.value.hint


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"user=postgres": "user=fleet"}, "PGPASSFILE"),
        ({"user=postgres": "user=fleet&password=wrong"}, "PGPASSFILE"),
        ({"user=postgres": "user=nobody-we-know&password=wrong"}, "PGPASSFILE"),
        ({"/postgres?": "/another?"}, "correct the database in the address, or make it"),
        ({"user=postgres": "user=postgres&port=99999"}, "correct the port in the address"),
    ],
)
def test_a_refused_login_says_at_once_what_to_give_in_every_face_and_is_no_reason_to_retry(
    guarded: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], advice: str
) -> None:
    url = guarded.url
    for found, instead in change.items():
        url = url.replace(found, instead)
    url = f"{url}&workspace=first"
    holdfast.open(tmp_path / "own", actor="ann").close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: holdfast.replicate(tmp_path / "own", url, create=True),
        lambda: holdfast.open(url, folder=tmp_path / "node", actor="ann"),
    )
    for call in calls:
        with pytest.raises(errors.LogRefused) as refusal:
            call()
        assert advice in refusal.value.hint
        assert "retry" not in refusal.value.hint
        assert not refusal.value.retryable
    assert not (tmp_path / "node").exists()
    for words in (
        ["replicate", url, "--dir", str(tmp_path / "own")],
        ["init", "--log", url, "--dir", str(tmp_path / "n")],
    ):
        assert main(words) == errors.LogRefused.exit_code
        said = capsys.readouterr().err
        assert advice in said
        assert "wrong" not in said.replace("password authentication failed", "")


def test_a_node_that_lost_its_login_reads_on_and_says_what_to_give(
    guarded: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    url = f"{guarded.url.replace('user=postgres', 'user=fleet')}&workspace=second"
    with holdfast.open(url, folder=tmp_path / "node", actor="ann", create=True) as ws:
        ws.cells.increment("run", "cell")
    monkeypatch.delenv("PGPASSWORD")
    with holdfast.open(tmp_path / "node", actor="ann", patience=0.1) as ws:
        assert ws.cells.get("run", "cell").value == 1
        with pytest.raises(errors.LogRefused, match="no password supplied"):
            ws.cells.increment("run", "cell")
    assert main(["doctor", "--dir", str(tmp_path / "node"), "--actor", "ann"]) == 1
    assert "PGPASSFILE" in capsys.readouterr().out


class TlsEnd:
    """Ends TLS in front of a PostgreSQL server on a socket of this machine."""

    def __init__(self, files: Pair, upstream: str) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*files)
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.greeted = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            assert client.recv(8)[4:] == (80877103).to_bytes(4, "big"), "a client asks for TLS first"
            client.sendall(b"S")
            try:
                inside = self._context.wrap_socket(client, server_side=True)
            except (OSError, ssl.SSLError):
                return  # it does not trust the certificate
            self.greeted += 1
            with inside, socket.socket(socket.AF_UNIX) as server:
                server.connect(self._upstream)
                _pass_on(inside, server)

    def close(self) -> None:
        """Accept nobody any more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def _pass_on(inside: ssl.SSLSocket, server: socket.socket) -> None:
    while True:
        ready = [inside] if inside.pending() else select.select([inside, server], [], [])[0]
        for source in ready:
            try:
                data = source.recv(65536)
            except OSError:
                return
            if not data:
                return
            (server if source is inside else inside).sendall(data)


def test_n1_postgresql_over_tls_as_libpq_does_it(tmp_path: Path, stack: ExitStack) -> None:
    ours, theirs = certified(tmp_path, "ours"), certified(tmp_path, "theirs")
    server = shared_server()
    end = stack.enter_context(closing(TlsEnd(ours, str(server.folder / ".s.PGSQL.5432"))))
    name = f"tls-{os.urandom(4).hex()}"

    def address(root: Path, mode: str = "verify-full") -> str:
        where = f"postgresql://postgres@127.0.0.1:{end.port}/postgres"
        return f"{where}?sslmode={mode}&sslrootcert={root}&workspace={name}&gssencmode=disable"

    with holdfast.open(address(ours.cert), folder=tmp_path / "node", actor="ann", create=True) as ws:
        ws.cells.set("run", "cell", 1)
    assert end.greeted > 0
    with holdfast.open(tmp_path / "node", actor="ann") as ws:
        assert ws.using(at_least="latest").cells.get("run", "cell").value == 1
    with pytest.raises(errors.Unreachable, match=r"(?i)certificate verify failed"):
        holdfast.open(address(theirs.cert), folder=tmp_path / "other", actor="ann", patience=0)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_n1_a_postgresql_without_tls_is_not_spoken_to_in_the_clear(mode: str, stack: ExitStack) -> None:
    """A server that answers to the demand for TLS that it has none."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    heard: list[bytes] = []

    def refuse() -> None:
        client, _ = listener.accept()
        with client:
            heard.append(client.recv(8))
            client.sendall(b"N")
            heard.append(client.recv(8))

    refusing = threading.Thread(target=refuse)
    refusing.start()
    url = f"postgresql://me:{PASSWORD}@127.0.0.1:{listener.getsockname()[1]}/db?sslmode={mode}&gssencmode=disable"
    log = stack.enter_context(closing(PostgresLog(url, "w")))
    with pytest.raises(errors.Unreachable, match="SSL") as caught:
        log.head()
    refusing.join()
    assert PASSWORD not in str(caught.value)
    assert heard[1] == b"", "it says nothing more"
