"""A server on a shared machine: nothing that is asked reads a file, takes the machine, or is another site's doing."""

import asyncio
import json
import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from shardmeter.core import files
from shardmeter.core.errors import ShardMeterError
from shardmeter.ui.guard import HEADERS, Guard, bare, hosts_of, is_loopback
from shardmeter.ui.state import deflated

ONE = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB"}
ROOT = str(Path(__file__).parents[2])
PRIVATE = (ROOT, str(Path.home()) + "/", "Traceback", "root:", "site-packages", "/bin/bash", ".py")


@pytest.fixture
def closed(monkeypatch):
    """This process as a worker is: no file may be named."""
    monkeypatch.setattr(files, "_CLOSED", True)


def whole(text, **more):
    return urlencode({"yaml": deflated(text), **more})


def quiet(found):
    """The body of a response, which must not speak of this machine."""
    text = found.body.decode()
    assert not [one for one in PRIVATE if one in text], text[:500]
    return text


def raw(page, head, body=b"", *, seconds=10.0):
    """The bytes that come back for bytes that are sent."""
    with socket.create_connection(("127.0.0.1", page.port), timeout=seconds) as one:
        one.sendall(head + body)
        found = b""
        try:
            while part := one.recv(65536):
                found += part
                if b"\r\n\r\n" in found and b"content-length: " in found.lower():
                    size = (
                        0
                        if head.startswith(b"HEAD")
                        else int(found.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                    )
                    if len(found.partition(b"\r\n\r\n")[2]) >= size:
                        break
        except ConnectionResetError:
            pass
    return found


FILES = (
    "/etc/passwd", "../../../../etc/passwd", "~/.ssh/id_rsa", "~root", "file:///etc/passwd", "./examples", "examples", "src", ".", "..",
    "examples/llama-8b-64xh100.yaml", "pyproject.toml", "examples/logs", "/proc/self/environ", "/dev/zero", "C:\\boot.ini", "x.safetensors",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "place", ["model", "stack", "base", "reference", "law", "prices", "accelerator", "option", "set", "vision"]
)
def test_a_scenario_reads_no_file(page, place, name):
    text = json.dumps(name)
    queries = {
        "model": whole(f"model: {text}\ngpus: 8xH100-SXM5-80GB\n"),
        "stack": whole(f"model: llama-3.1-8b\nstack: {text}\ngpus: 8xH100-SXM5-80GB\n"),
        "base": whole(f"model: {{base: {text}, layers: 4}}\ngpus: 8xH100-SXM5-80GB\n"),
        "vision": whole(f"model: {{base: llama-3.1-8b, vision: {text}}}\ngpus: 8xH100-SXM5-80GB\n"),
        "reference": whole(f"model: llama-3.1-8b\ngpus: 8xH100-SXM5-80GB\nrun: {{reference: {text}}}\n"),
        "law": whole(f"model: llama-3.1-8b\ngpus: 8xH100-SXM5-80GB\nrun: {{law: {text}, tokens: 1T}}\n"),
        "prices": whole(f"model: llama-3.1-8b\nfleet: {{prices: {text}, islands: [{{gpus: 8xH100-SXM5-80GB}}]}}\n"),
        "accelerator": whole(f"model: llama-3.1-8b\nfleet: {{islands: [{{accelerator: {text}, nodes: 1}}]}}\n"),
        "option": urlencode(ONE | {"model": name}),
        "set": urlencode(ONE | {"set": f"run.reference={text}"}),
    }
    found = page.ask("/api/numbers", queries[place])
    said = quiet(found)
    assert found.status == 422, said
    assert json.loads(said)["error"]["violations"], said


NAMED = (
    {"model": "{}"}, {"model": {"base": "{}"}}, {"model": "llama-3.1-8b", "stack": "{}"}, {"model": "llama-3.1-8b", "run": {"reference": "{}"}},
    {"model": {"base": "llama-3.1-8b", "vision": "{}"}}, {"model": "llama-3.1-8b", "fleet": {"prices": "{}", "islands": [{"gpus": "8xH100-SXM5-80GB"}]}},
    {"model": "llama-3.1-8b", "run": {"law": "{}", "tokens": "1T"}},
)  # fmt: skip


@pytest.mark.parametrize("scenario", NAMED, ids=str)
def test_behind_the_page_no_file_is_read_either(closed, scenario, tmp_path, monkeypatch):
    """Were a name to pass the page, what opens files would still open none: it would not even learn whether one is there."""
    from shardmeter.scenario import load

    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for text in ("secret.yaml", "secret.json", "secret.csv"):
        (tmp_path / text).write_text("secret: 42\nparameters,tokens,loss\n", encoding="utf-8")

    def refusals():
        for name in ("secret.yaml", "secret.csv", "secret.json", "./folder", "folder", str(tmp_path / "secret.yaml")):
            data = json.loads(json.dumps({"gpus": "8xH100-SXM5-80GB"} | scenario).replace("{}", name))
            if "fleet" in data:
                del data["gpus"]
            with pytest.raises(ShardMeterError) as caught:
                load(data)
            yield str(caught.value)

    there = list(refusals())
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    assert there == list(refusals()), "whether a file is there is told"
    assert not [text for text in there if "42" in text]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/..%2f..%2fapp.py", "/static/%2e%2e/%2e%2e/app.py", "/static//etc/passwd", "/static/%2fetc%2fpasswd",
        "//etc/passwd", "/static/..\\..\\app.py", "/static/index.html%00.py", "/../../etc/passwd", "/vendor/../static/x", "/static/",
        "/download/../../etc/passwd", "/api/search/../../x", "/static/./../warm.py",
    ],
)  # fmt: skip
def test_a_path_is_looked_up_and_never_followed(page, path):
    found = raw(page, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    status = int(found.split()[1])
    assert status in (404, 405, 422), found[:200]
    assert b"import" not in found
    assert b"root:" not in found


BOMBS = {
    "anchors": "a: &a [x,x]\nb: &b [*a,*a]\nmodel: llama-3.1-8b\n",
    "tags": "model: !!python/object/apply:os.system [id]\ngpus: 8xH100-SXM5-80GB\n",
    "deep": "model: " + "[" * 5000 + "\n",
    "deep mapping": "".join(" " * n + f"k{n}:\n" for n in range(200)),
    "many": "model: [" + "1," * 30_000 + "1]\n",
    "wide key": "k" * 60_000 + ": 1\n",
    "documents": "model: a\n---\nmodel: b\n",
    "binary": "model: \x00\x01\n",
    "long number": "model: llama-3.1-8b\ngpus: 8xH100-SXM5-80GB\nrun: {tokens: " + "9" * 5000 + "}\n",
    "config": "model_type: llama\nhidden_size: 4096\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_a_refusal(page, name):
    began = time.monotonic()
    found = page.ask("/api/predict", whole(BOMBS[name]))
    assert found.status == 422, found.body[:300]
    quiet(found)
    assert time.monotonic() - began < 8.0


@pytest.mark.parametrize(
    "more",
    [
        {"tokens": "1e999"}, {"tokens": "-1"}, {"tokens": "nan"}, {"gpus": "99999999999999xH100-SXM5-80GB"}, {"gpus": "0xH100-SXM5-80GB"},
        {"islands": "1000000000", "bandwidth": "1 Gbps", "rtt": "1 ms"}, {"islands": "-3"}, {"islands": "1e9"}, {"seq": "9" * 400},
        {"micro_batch": "1e300"}, {"global_batch": "1e308"}, {"plan": "fsdp,pp=100000"}, {"plan": "fsdp" + ",x=1" * 300}, {"set": "a" * 4000},
        {"set": ".".join("a" * 100) + "=1"}, {"set": "model.layers=1e30"}, {"rtt": "1e99 ms", "islands": "2", "bandwidth": "1 Gbps"},
        {"plan": "fsdp,tp=0"}, {"set": "fleet.islands=[{gpus: 8xH100-SXM5-80GB, count: 1000000}]"}, {"price": "$1e400/gpu/h"},
    ],
    ids=str,
)  # fmt: skip
def test_huge_numbers_are_refused_or_answered(page, more):
    began = time.monotonic()
    found = page.ask("/api/numbers", ONE | more)
    quiet(found)
    assert found.status == 422, found.body[:300]
    assert time.monotonic() - began < 8.0


@pytest.mark.parametrize(
    ("view", "more"),
    [
        ("returns", {"over": "plan.micro_batch=1..1000000000"}),
        ("transitions", {"x": "plan.micro_batch=1..1000000", "y": "run.seq_len=1..1000000"}),
        ("tradeoffs", {"over": ["plan.micro_batch=1..1000", "run.seq_len=1..1000", "run.global_batch=1..1000"]}),
        ("trace", {"global_batch": "100000000", "steps": "4"}),
        ("trace", {"steps": "1000000"}),
        ("sensitivity", {"pairs": "1000000"}),
        ("sensitivity", {"of": "__class__"}),
        ("doctor", {"measured": [f"x{n}=1" for n in range(150)]}),
        ("doctor", {}),
        ("returns", {"scaling": "sideways"}),
    ],
)
def test_large_questions_are_refused(page, view, more):
    found = page.ask(f"/api/{view}", urlencode(ONE | more, doseq=True))
    quiet(found)
    assert found.status == 422, found.body[:300]


@pytest.mark.slow
def test_what_takes_longer_than_it_may_is_ended(page):
    before = page.children()
    slow = {
        "plan": "auto",
        "gpus": "64..4096:x2xH100-SXM5-80GB",
        "set": ["plan.micro_batch=1..256", "plan.recompute=any", "plan.schedule=any"],
    }
    began = time.monotonic()
    found = page.ask("/api/predict", urlencode({"model": "llama-3.1-8b"} | slow, doseq=True))
    took = time.monotonic() - began
    assert found.status == 504, found.body[:300]
    assert 9.0 < took < 14.0
    assert page.ask("/api/numbers", ONE | {"tokens": "3T"}).status == 200
    assert len(page.children()) <= len(before) + 1


def test_every_response_carries_the_policy(page):
    for path, query in (
        ("/", None),
        ("/api/numbers", ONE),
        ("/api/numbers", {"modl": "x"}),
        ("/nothing", None),
        ("/vendor/plotly.min.js", None),
    ):
        found = page.ask(path, query)
        for name, value in HEADERS.items():
            assert found.headers[name] == value, (path, name)
        assert "set-cookie" not in found.headers
        assert "server" not in found.headers
        assert "access-control-allow-origin" not in found.headers
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "evil.example:8642", "localhost.evil.example", "", "169.254.169.254"],
)
def test_another_name_is_not_answered(page, host):
    found = page.ask("/api/numbers", ONE, headers={"Host": host})
    assert found.status in (400, 421)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:1234", "[::1]:8642", "LOCALHOST"])
def test_a_name_of_this_machine_is(page, host):
    assert page.ask("/api/numbers", ONE, headers={"Host": host}).status == 200


def test_two_hosts_are_none(page):
    found = raw(page, b"GET /api/schema HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n")
    assert found.split()[1] in (b"400", b"421")
    assert raw(page, b"GET /api/schema HTTP/1.1\r\n\r\n").split()[1] == b"400"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"])
def test_other_methods_are_not_answered(page, method):
    found = raw(page, f"{method} /api/schema HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert found.split()[1] in (b"405", b"400")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/numbers"), ("DELETE", "/"), ("GET", "/api/search"), ("POST", "/static/app.js")]
)
def test_an_address_has_its_method(page, method, path):
    assert page.ask(path, method=method).status in (404, 405)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)  # fmt: skip
def test_another_sites_page_is_not_answered(page, headers):
    assert page.ask("/api/numbers", ONE, headers=headers).status == 403
    assert page.ask("/api/search", method="POST", body=urlencode(ONE), headers=headers).status == 403


def test_a_link_from_elsewhere_is_followed_but_starts_nothing(page):
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert page.ask("/api/numbers", ONE, headers=followed).status == 200
    assert page.ask("/api/search", method="POST", body=urlencode(ONE), headers=followed).status == 403
    own = {"Origin": f"http://127.0.0.1:{page.port}", "Sec-Fetch-Site": "same-origin"}
    assert page.ask("/api/numbers", ONE, headers=own).status == 200


def test_large_requests_are_refused(page):
    assert page.ask("/api/numbers", "model=" + "a" * 66_000).status == 413
    assert raw(page, b"GET /?x=" + b"a" * 400_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").split()[1] in (
        b"400",
        b"413",
    )
    assert page.ask("/api/search", method="POST", body="a" * 70_000).status == 413
    chunks = b"".join(b"1000\r\n" + b"a" * 4096 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n"
    found = raw(page, b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n", chunks)
    assert found.split()[1] == b"413"
    for length in (b"99999999999999999999", b"-1", b"abc"):
        found = raw(page, b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + length + b"\r\n\r\n")
        assert found.split()[1] in (b"400", b"413")


def test_no_header_is_made_of_what_is_asked(page):
    for text in ("x\r\nSet-Cookie: a=b", "x\nX-Own: 1", 'x"; filename="y'):
        for path in (
            "/api/numbers?model=",
            "/download/",
            "/api/search/",
            "/download/answer.csv?view=",
            "/api/catalog?kind=",
        ):
            found = page.ask(path + quote(text))
            assert "set-cookie" not in found.headers
            assert "x-own" not in found.headers
            assert found.status in (404, 422)
    assert raw(page, "GET /api/numbers?model=\u00fc HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()).split()[1] in (
        b"400",
        b"422",
    )


def test_nonsense_is_no_fault_of_ours(page):
    for noise in (
        b"\x00" * 200 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        os.urandom(300) + b"\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", page.port), timeout=5) as one:
            one.sendall(noise)
            one.shutdown(socket.SHUT_WR)
            found = one.recv(1000)
        assert not found or found.split()[1] in (b"400", b"421"), found
    assert page.ask("/api/schema").status == 200


def answered_by(guard, client):
    """Ask a guard in this event loop; the status."""
    scope = {
        "type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"127.0.0.1:8642"), (b"x-client", client.encode())],
    }  # fmt: skip
    found = []

    async def send(message):
        if message["type"] == "http.response.start":
            found.append(message["status"])

    async def ask():
        await guard(scope, None, send)
        return found[0]

    return ask()


def test_one_client_has_so_many_answers_at_once():
    async def count():
        go, full, begun = asyncio.Event(), asyncio.Event(), []

        async def app(scope, receive, send):
            begun.append(scope)
            if len(begun) == 6:
                full.set()
            await go.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        guard = Guard(app, hosts_of("127.0.0.1"), most=5)
        asked = [asyncio.ensure_future(answered_by(guard, "greedy")) for _ in range(8)]
        other = asyncio.ensure_future(answered_by(guard, "modest"))
        await full.wait()
        go.set()
        first = await asyncio.gather(*asked)
        again = await answered_by(guard, "greedy")
        return first, await other, again, guard.open

    first, other, again, still_open = asyncio.run(count())
    assert first == [200] * 5 + [429] * 3
    assert other == 200, "another client is answered meanwhile"
    assert again == 200, "whoever waits for his answers may ask again"
    assert not still_open


def test_a_client_that_asks_much_leaves_room_for_others(page):
    found = []
    slow = {"plan": "auto", "set": "plan.micro_batch=1..64"}

    def client(number):
        query = urlencode(ONE | slow | {"tokens": f"{number + 1}B"})
        found.append(page.ask("/api/returns", query, headers={"X-Client": "greedy"}).status)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(40)]
    for one in threads:
        one.start()
    time.sleep(0.5)
    other = page.ask("/api/numbers", ONE | {"tokens": "2T"}, headers={"X-Client": "modest"}).status
    for one in threads:
        one.join()
    assert set(found) <= {200, 429, 503, 504}
    assert other == 200, "another client is answered meanwhile"


def test_a_folder_of_rows_comes_from_the_command_line_alone(page, serving, tmp_path):
    assert page.ask("/api/numbers", ONE | {"catalog": str(tmp_path)}).status == 422
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "house-model.yaml").write_text(
        "name: house-model\nlayers: 4\nhidden: 512\nffn: 1024\nheads: 8\nkv_heads: 8\nhead_dim: 64\nvocab: 1000\nsource: ours\nretrieved: 2026-01-01\n",
        encoding="utf-8",
    )
    assert page.ask("/api/numbers", ONE | {"model": "house-model"}).status == 422
    with serving("--catalog", str(tmp_path)) as own:
        found = own.ask("/api/numbers", ONE | {"model": "house-model"})
        assert found.status == 200, found.body
        assert "house-model" in own.ask("/api/catalog", {"kind": "models"}).body.decode()
        quiet(own.ask("/api/numbers", ONE | {"model": str(tmp_path / "models" / "house-model.yaml")}))


@pytest.mark.parametrize(
    ("bound", "near"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("127.3.2.1", True),
        ("0.0.0.0", False),
        ("", False),
        ("10.0.0.7", False),
    ],
)
def test_who_reaches_an_address(bound, near):
    assert is_loopback(bound) is near


def test_names_of_a_server_that_is_bound_to_all_addresses():
    hosts = hosts_of("0.0.0.0", ("Gpu.Example",))
    for known in ("10.1.2.3:8642", "localhost", "gpu.example:80", "[fe80::1]:8642", socket.gethostname()):
        assert hosts.knows(known), known
    for unknown in ("evil.example", "10.1.2.3.evil.example", "", "10.1.2"):
        assert not hosts.knows(unknown), unknown


def test_hosts_lose_their_port():
    assert [bare(text) for text in ("a:1", "[::1]:2", "::1", "A", "[::1]")] == ["a", "::1", "::1", "a", "::1"]


def test_an_address_in_brackets_is_one():
    assert [bare(text) for text in ("[::1", "[::1]evil.example", "[::1]x:80")] == ["", "", ""]


def test_who_goes_away_within_a_body_is_no_fault(serving):
    """Half a body and an end: nothing is said of a fault, and the next is answered."""
    with serving(killed=True) as own:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", own.port), timeout=5) as one:
                one.sendall(b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\nmodel")
        assert own.ask("/api/schema").status == 200
        os.kill(own.pid, signal.SIGINT)
        assert "unexpected" not in own.errors()


def test_a_body_that_does_not_arrive_is_said_to(page):
    found = raw(page, b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\nmodel", seconds=20.0)
    assert found.split()[1] == b"408"
    assert b"did not arrive" in found


class Wire:
    """A transport that holds what is written until it is taken."""

    def __init__(self):
        self.left, self.gone = 0, False

    def get_extra_info(self, _):
        return None

    def get_write_buffer_size(self):
        return self.left

    def abort(self):
        self.gone = True

    def is_closing(self):
        return self.gone

    def close(self):
        self.gone = True

    pause_reading = resume_reading = write = lambda *_: None


def connected(head_s=0.1, stalled_s=0.1):
    """A connection of short patience, and its wire; within a loop."""
    pytest.importorskip("uvicorn")
    import asyncio

    from uvicorn import Config
    from uvicorn.server import ServerState

    from shardmeter.ui.connection import Connection

    async def nothing(scope, receive, send):
        await asyncio.sleep(10)

    config = Config(nothing, http=Connection, ws="none", log_level="critical")
    config.load()
    made, wire = Connection(config, ServerState(), {}), Wire()
    made.head_s, made.stalled_s = head_s, stalled_s
    made.connection_made(wire)  # type: ignore[arg-type]
    return made, wire


@pytest.mark.parametrize(
    ("sent", "gone"),
    [
        (b"", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", False),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", False),
    ],
)
def test_half_a_head_keeps_no_place(sent, gone):
    import asyncio

    async def go():
        made, wire = connected()
        if sent:
            made.data_received(sent)
        await asyncio.sleep(0.25)
        assert wire.gone is gone
        for task in made.tasks:
            task.cancel()

    asyncio.run(go())


@pytest.mark.parametrize("reads", [True, False])
def test_who_takes_nothing_keeps_no_place(reads):
    import asyncio

    async def go():
        made, wire = connected(head_s=9.0)
        wire.left = 1000
        made.pause_writing()
        for _ in range(10):
            await asyncio.sleep(0.05)
            wire.left -= 10 if reads else 0
        assert wire.gone is not reads
        made.resume_writing()
        made.connection_lost(None)

    asyncio.run(go())
