"""Graph, timeline, mail, locks and state in a real browser, each as a person uses it (W5, W6, W8, W9, W10)."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.web.site import NARROW, WIDE, Person, Site

# --- W5 --------------------------------------------------------------------------------------------------------------


def test_w5_the_graph_shows_the_critical_path_and_who_holds_what(site: Site, maya: Person) -> None:
    count = len(site.by("maya").tasks.graph(site.ids["release"]).nodes) - 1  # the root itself waits for nobody
    maya.open("graph", site.ids["release"])
    expect(maya.find(".node")).to_have_count(count)
    expect(maya.find(".node.on-path")).not_to_have_count(0)
    expect(maya.find(f'.node[data-id="{site.ids["page"]}"]')).to_contain_text("hana")
    expect(maya.find("path.edge.critical")).not_to_have_count(0)
    maya.sees(".graph-rail", "Critical path")
    maya.find(f'.node[data-id="{site.ids["sign"]}"]').click()
    expect(maya.page).to_have_url(re.compile(f"task/{site.ids['sign']}$"))
    maya.page.go_back()
    expect(maya.find(".node")).to_have_count(count)


def test_w5_it_zooms_folds_and_saves(site: Site, maya: Person) -> None:
    count = len(site.by("maya").tasks.graph(site.ids["release"]).nodes)
    maya.open("graph", site.ids["release"], query="?tree=1")
    expect(maya.find(".node")).to_have_count(count)
    maya.page.get_by_role("button", name="zoom in").click()
    before = maya.find(".percent").inner_text()
    maya.page.keyboard.press("-")
    assert maya.find(".percent").inner_text() != before
    maya.page.get_by_role("button", name=f"fold {site.ids['release']}").click()
    expect(maya.find(".node")).to_have_count(1)
    maya.sees(".node", f"+ {count - 1} folded")
    maya.page.get_by_role("button", name=f"unfold {site.ids['release']}").click()
    with maya.page.expect_download() as saving:
        maya.page.get_by_role("button", name="save SVG").click()
    text = saving.value.path().read_text()
    assert text.startswith("<svg")
    assert "sign the release" in text


def test_w5_it_opens_so_that_it_can_be_read_and_nothing_leaves_its_box(site: Site, maya: Person) -> None:
    ws = site.by("a-rather-long-name")
    top = ws.tasks.create("wide", type="epic").id
    made = [ws.tasks.create(f"{n} " + "unbroken" * 9, parent_id=top).id for n in range(40)]
    for id in made[1:]:
        ws.tasks.depend(id, made[0])
    ws.tasks.claim(made[0])
    for query in ("", "?tree=1"):
        maya.open("graph", top, query=query)
        node = maya.find(f'.node[data-id="{made[0]}"]')
        expect(node).to_be_in_viewport()
        assert int(maya.find(".percent").inner_text().split()[0]) >= 70
        parts = node.evaluate("""node => {
            const box = (each) => each.getBoundingClientRect(), at = (name) => box(node.querySelector(name));
            const titles = [...node.querySelectorAll('.node-title')].map((each) => box(each).right);
            return [Math.max(...titles), at('.box').right, at('.node-id').right, at('.node-holder').left];
        }""")
        assert parts[0] <= parts[1], "the title stays in its box"
        assert parts[2] <= parts[3], "the holder does not cover the id"
        expect(maya.find(".node-holder").first).to_contain_text("…")
    for track in maya.find('.graph-rail .section:has(h3:text("Parallel tracks")) .rail-row').all():
        assert (track.bounding_box() or {"height": 99})["height"] < 34, "on one line"


# --- W6 --------------------------------------------------------------------------------------------------------------


def test_w6_lanes_show_claims_by_how_they_ended_and_follow_now(site: Site, maya: Person) -> None:
    site.by("ugo").locks.acquire("for-ever")
    maya.open("timeline")
    expect(maya.find('.lane[data-agent="gus"] .claim-bar.how-expired')).to_have_count(1)
    expect(maya.find('.lane[data-agent="ugo"] .endless-lock')).to_have_count(1)
    words = maya.find('.lane[data-agent="ugo"] .lane-red')
    expect(words).to_have_text("for-ever, no end")
    assert float(words.get_attribute("x") or 0) > 600, "it stands where the lock began, not at the left edge"
    hana = maya.find(f'.lane[data-agent="hana"] .claim-bar[data-task="{site.ids["page"]}"]')
    hana.hover()
    maya.sees(".hover-card", "split the settings page")
    maya.sees(".hover-card", "still has it")
    mia = site.by("mia")
    task = mia.tasks.create("a short one")
    mia.tasks.claim(task.id)
    expect(maya.find('.lane[data-agent="mia"] .claim-bar.how-held')).to_have_count(1)
    mia.tasks.complete(task.id, review=False)
    maya.page.get_by_role("button", name="1 min", exact=True).click()
    expect(maya.find('.lane[data-agent="mia"] .claim-bar.how-closed')).to_have_count(1)
    assert "span=60" in maya.page.url
    maya.page.get_by_role("button", name="earlier").click()
    maya.page.get_by_role("button", name="follow now").click()
    maya.page.get_by_role("button", name="1 w", exact=True).click()
    expect(maya.find('.lane[data-agent="ada"] .claim-bar')).not_to_have_count(0)


def test_w6_mail_is_ticks_and_locks_and_waits_are_lines(site: Site, maya: Person) -> None:
    nia, oda = site.by("nia"), site.by("oda")
    lock = oda.paths.lock(["lib/codec/**"], ttl=900)
    nia.mail.send(["maya"], "the first")
    maya.open("timeline", query="?span=900")
    lane = maya.find('.lane[data-agent="nia"]')
    expect(lane.locator(".mail-tick")).to_have_count(1)
    expect(lane.locator("svg.lane-picture")).to_have_attribute("aria-label", "nia: 0 claims, 0 locks, 1 messages")
    site.by("noa").mail.send(["maya"], "the second")
    expect(maya.find('.lane[data-agent="noa"] .mail-tick')).to_have_count(1)
    expect(maya.find('.lane[data-agent="oda"] .lock-bar')).to_have_count(1)
    with site.waiting(("pia", "lib/codec/a.py")):
        expect(maya.find('.lane[data-agent="pia"] .wait-line')).to_have_count(1)
        expect(maya.find('.lane[data-agent="pia"] .lane-name')).to_contain_text("in line")
        oda.paths.release(id=lock.id)
        expect(maya.find('.lane[data-agent="pia"] .wait-line')).to_have_count(0)
        expect(maya.find('.lane[data-agent="pia"] .lock-bar')).to_have_count(1)
    maya.find('.lane[data-agent="oda"] .lock-bar').hover()
    maya.sees(".hover-card", "oda locked it at")
    maya.sees(".hover-card", "released")


def test_w6_a_long_name_keeps_its_lane_and_its_state(site: Site, maya: Person) -> None:
    name = "agent-with-a-rather-long-name-session-20261119-f3a9c1"
    ws = site.by(name)
    ws.tasks.claim(ws.tasks.create("held").id)
    maya.open("timeline")
    lane = maya.find(f'.lane[data-agent="{name}"] .lane-name')
    expect(lane).to_contain_text("agent-w…")
    expect(lane.locator("b")).to_have_attribute("title", name)
    expect(lane).to_contain_text("in progress")
    assert lane.evaluate("lane => lane.scrollHeight <= lane.clientHeight")


# --- W8 --------------------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_w8_a_person_reads_replies_and_acknowledges(site: Site, maya: Person) -> None:
    nia = site.by("nia")
    asked = nia.mail.send(["maya"], "May I **merge**?", "See `main`.", type="decision-required", ack=True)
    maya.open("mail", asked.thread)
    maya.sees(".thread-head h2", "May I **merge**?")
    expect(maya.find(".letter code")).to_have_text("main")
    assert nia.mail.get(asked.id).status["maya"] == "unread", "reading acknowledges nothing"
    maya.page.get_by_label("Your reply").fill("Yes, **do**.")
    maya.page.keyboard.press("Control+Enter")
    expect(maya.find(".letter")).to_have_count(2)
    maya.sees(".letter-step", "maya")
    expect(maya.find(".letter strong")).to_have_text("do")
    assert nia.mail.get(asked.id).status["maya"] == "acknowledged"
    assert [message.body for message in nia.mail.thread(asked.id)][-1] == "Yes, **do**."


def test_w8_a_thread_shows_the_task_that_it_holds_up(site: Site, maya: Person) -> None:
    maya.open("mail")
    maya.sees(".thread-head h2", "Which port on the test machine?")
    expect(maya.find(f'.mail-rail .rail-row:has-text("{site.ids["port"]}")')).to_contain_text("eli")
    expect(maya.find(".mail-rail").get_by_role("img", name="parked")).to_have_count(1)


def test_w8_a_person_writes_and_finds(site: Site, maya: Person) -> None:
    maya.open("mail")
    expect(maya.find(".thread-row").first).to_be_visible()
    maya.page.keyboard.press("w")
    expect(maya.page.get_by_label("To")).to_have_value("")  # nobody is written to by mistake
    maya.page.get_by_label("To").select_option("ada")
    maya.page.get_by_label("Subject", exact=True).fill("About the lexer")
    maya.page.get_by_label("Text, Markdown").fill("Keep it small.")
    maya.page.get_by_role("button", name="Send").click()
    maya.sees(".thread-head h2", "About the lexer")
    maya.page.get_by_label("Subject or body").fill("proxy")
    expect(maya.find(".thread-row")).to_have_count(1)
    maya.sees(".thread-row", "Which port on the test machine?")


def test_w8_mail_to_everybody_shows_everybody_and_you_first(site: Site, maya: Person) -> None:
    nia = site.by("nia")
    for n in range(20):
        site.by(f"more-{n}").agents.register()
    sent = nia.mail.send("*", "A word to **all**", "It is `done`:\n\n- one", ack=True)
    nia_status = nia.mail.get(sent.id).status
    site.by("more-7").mail.ack(sent.id)
    maya.open("mail", sent.thread)
    people = maya.find('.mail-rail .section:has(h3:text("Who has done what")) .rail-row')
    expect(people.first).to_contain_text("maya")
    expect(people.nth(1)).to_contain_text("more-7")
    expect(maya.find(".mail-rail .few").first).to_contain_text(f"{len(nia_status) - 12} more")
    maya.find(".mail-rail summary").first.click()
    assert {row.locator("b").inner_text() for row in people.all()} == set(nia_status)
    expect(maya.find(".thread-row.selected")).to_contain_text("It is done: one")


# --- W9 --------------------------------------------------------------------------------------------------------------


def test_w9_locks_are_a_tree_with_lines_of_waiters_and_force_asks_for_a_reason(site: Site, maya: Person) -> None:
    oda = site.by("oda")
    lock = oda.paths.lock(["lib/codec/**"], ttl=900)
    oda.paths.lock(["lib/other/**"], ttl=900)
    oda.locks.acquire("release-train")
    with site.waiting(("pia", "lib/codec/a.py"), ("quin", "release-train")):
        maya.open("locks")
        row = maya.find(f'tr[data-lock="{lock.id}"]')
        expect(row).to_contain_text("codec/**")
        expect(row.locator(".chip")).to_have_text(re.compile(r"^1pia\d+ s$"))
        maya.page.get_by_role("button", name="fold lib/").click()
        expect(row).to_have_count(0)
        maya.page.get_by_role("button", name="unfold lib/").click()
        maya.page.get_by_label("Who covers this path?").fill("lib/codec/deep/x.py")
        expect(maya.find("tr[data-lock]")).to_have_count(1)
        maya.page.get_by_label("Who covers this path?").fill("")
        maya.find('tr[data-lock="release-train"]').click()
        maya.sees(".locks-side .waiter", "quin")
        maya.find(".locks-side .panel").first.get_by_role("button", name="force release…").click()
        maya.sees("dialog", "quin gets it next.")
        maya.page.get_by_label("Reason, kept in the log").fill("oda is gone")
        maya.page.get_by_role("button", name="Release by force").click()
        expect(maya.find('tr[data-lock="release-train"]')).to_contain_text("quin")
    ws = site.by("maya")
    released = [event for event in ws.events.list(kinds=["lock"], after=0, limit=1000) if event.op == "release"]
    assert released[-1].data["note"] == "oda is gone"


def test_w9_a_path_lock_is_released_by_force_and_its_holder_can_be_written_to(site: Site, maya: Person) -> None:
    oda = site.by("oda")
    lock = oda.paths.lock(["lib/codec/**"], ttl=900)
    with site.waiting(("pia", "lib/codec/a.py")):
        maya.open("locks", lock.id)
        row, side = maya.find(f'tr[data-lock="{lock.id}"]'), maya.find(".locks-side .panel").first
        expect(side.locator(".waiter")).to_contain_text("lib/codec/a.py")
        side.get_by_role("button", name="mail oda").click()
        maya.page.get_by_label("Text").fill("May pia go first?")
        maya.page.get_by_role("button", name="Send", exact=True).click()
        expect(maya.find("dialog")).to_have_count(0)
        side.get_by_role("button", name="force release…").click()
        force = maya.page.get_by_role("button", name="Release by force")
        force.click()
        expect(maya.find("dialog")).to_have_count(1)  # without a reason nothing is done
        maya.page.get_by_label("Reason, kept in the log").fill("oda went home")
        force.click()
        expect(row).to_have_count(0)
        expect(maya.find("tr[data-lock]", has_text="pia")).to_have_count(1)
    (told,) = oda.mail.inbox()
    assert (told.sender, told.body) == ("maya", "May pia go first?")
    events = site.by("maya").events.list(kinds=["path"], after=0, limit=1000)
    assert [event.data["note"] for event in events if event.op == "release" and event.id == lock.id] == [
        "oda went home"
    ]


DEEP = "services/billing/src/main/java/com/example/billing/invoices/impl/InvoiceServiceImpl.java"


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_w9_a_deep_path_is_one_line_and_shows_its_end(site: Site, chromium: Browser, size: tuple[int, int]) -> None:
    name = "agent-with-a-rather-long-name-session-20261119-f3a9c1"
    deep = site.by(name).paths.lock([DEEP], ttl=600)
    both = [site.by("oda").paths.lock([f"lib/core/{each}/**"], ttl=600).id for each in ("a", "b")]
    with site.person(chromium, "maya", size=size) as maya:
        maya.open("locks", deep.id)
        row = maya.find(f'tr[data-lock="{deep.id}"]')
        expect(row.locator(".path-end")).to_have_text("InvoiceServiceImpl.java")
        assert row.locator(".path-end").evaluate("end => end.scrollWidth <= end.clientWidth"), "its end is not cut"
        assert "services" in row.locator(".path").inner_text()
        expect(maya.find("tr.folder", has_text="services")).to_have_count(0)
        expect(maya.find("tr.folder", has_text="lib/core/")).to_have_count(1)
        for id, rest in zip(both, ("a/**", "b/**"), strict=True):
            expect(maya.find(f'tr[data-lock="{id}"] .path')).to_have_text(rest)
        expect(row).to_contain_text("agent-w")
        side = maya.find(".locks-side .panel").first
        expect(side).to_contain_text(DEEP)
        panel = side.bounding_box()
        button = side.get_by_role("button", name="force release…").bounding_box()
        assert panel
        assert button
        assert button["x"] + button["width"] <= panel["x"] + panel["width"]


def test_w9_a_lock_of_a_stash_has_its_name_and_no_force(site: Site, maya: Person) -> None:
    oda = site.by("oda")
    trail = oda.trails.create("release 9", state="active")
    gate = oda.stashes.create("gate", "lock", trail=trail.id)
    oda.stashes.acquire(gate.id, ttl=600)
    maya.open("locks", gate.id)
    expect(maya.find(f'tr[data-lock="{gate.id}"]')).to_contain_text("release 9/gate")
    expect(maya.find(".locks-side .panel").first).to_contain_text("oda")
    expect(maya.find(".locks-side .panel").first.get_by_role("button", name="force release…")).to_have_count(0)


# --- W10 -------------------------------------------------------------------------------------------------------------


def test_w10_cells_have_versions_diffs_and_cycles_their_phases(site: Site, maya: Person) -> None:
    maya.open("state", "cell", "run-7", "build")
    maya.sees("pre.code", '"commit": "a09f3d2"')
    maya.page.keyboard.press("d")
    expect(maya.find(".code .added")).to_have_count(1)
    maya.find(".version").nth(3).click()
    maya.sees(".detail-foot", "lies between")
    leaf = maya.page.get_by_role("link", name=re.compile(r"^build "))
    expect(leaf).to_have_text(re.compile(r"^buildv6\d+ (s|min|h|d)"))
    maya.page.keyboard.press("h")
    expect(maya.find(".state-detail tbody tr")).to_have_count(6)
    expect(maya.find(".phase-in_progress")).to_contain_text("the second factor has no test")
    ada = site.by("ada")
    ada.cells.set("run-7", "build", {"commit": "fresh"})
    expect(maya.find(".state-detail tbody tr")).to_have_count(7)
    expect(leaf).to_have_text(re.compile(r"^buildv7\d+ s"))
    maya.page.get_by_role("link", name="config").click()
    maya.sees(".state-detail", "-O2")
    maya.page.get_by_role("link", name="peer:spec:login:cycle:1").click()
    maya.sees("pre.code", "current_phase")


def test_w10_stashes_have_their_trails_versions_and_diffs(site: Site, maya: Person) -> None:
    ada, ben = site.by("ada"), site.by("ben")
    trail = ada.trails.create("third half", state="active")
    stash = ada.stashes.create("limits", "context", {"depth": 3, "names": ["a", "b"]}, trail=trail.id)
    maya.open("state")
    entry = maya.page.get_by_role("link", name="limits")
    expect(entry).to_contain_text("v1")
    entry.click()
    maya.sees("pre.code", '"depth": 3')
    maya.page.keyboard.press("d")
    maya.sees(".state-detail", "There is one version")
    maya.page.keyboard.press("v")
    ben.stashes.set_value(stash.id, {"depth": 4, "names": ["a", "b"]}, expected=1)
    maya.sees("pre.code", '"depth": 4')
    expect(maya.page.get_by_role("link", name="limits")).to_contain_text("v2")
    maya.page.get_by_role("button", name="diff").click()
    maya.sees(".code .removed", '"depth": 3')
    maya.sees(".code .added", '"depth": 4')
    maya.sees(".state-detail", "v1 by ada")
    ada.stashes.set_value(stash.id, {"depth": 5, "names": ["b"]}, expected=2)
    expect(maya.find(".version")).to_have_count(3)
    maya.find(".version").first.click()  # the first against the last
    expect(maya.find(".code .removed", has_text='"names": ["a", "b"]')).to_have_count(1)
    maya.sees(".detail-foot", "v2 by ben lies between")
    expect(maya.find(".state-detail tbody tr").first).to_contain_text("depth, names")
    ada.trails.complete(trail.id)
    expect(maya.find(".tree-row", has_text="trail: third half")).to_contain_text("completed")
    maya.page.get_by_label("Run, cell, stash, cycle").fill("motd")
    expect(maya.find(".tree-row.leaf")).to_have_count(0)
    maya.find(".tree-row", has_text="global").locator("button").click()
    expect(maya.find(".tree-row.leaf")).to_have_count(1)


def test_w10_a_cycle_moves_through_its_phases_while_it_is_looked_at(site: Site, maya: Person) -> None:
    hana = site.by("hana")
    cycle = hana.cycles.start(spec="search").cycle_id
    maya.open("state", "cycle", cycle)
    expect(maya.find(".phase").first).to_contain_text("nobody yet")
    hana.cycles.start_phase(cycle, "plan")
    expect(maya.find(".phase").first).to_contain_text("hana")
    expect(maya.find(".phase-in_progress")).to_contain_text("plan")
    hana.cycles.complete_phase(cycle, "plan", {"steps": 5})
    expect(maya.find(".phase-completed")).to_contain_text("plan")
    maya.sees("pre.code", '"steps": 5')
    site.by("kit").cycles.start_phase(cycle, "execute")
    site.by("kit").cycles.fail_phase(cycle, "execute", "no second factor")
    expect(maya.find(".phase-failed")).to_contain_text("no second factor")
    maya.sees(".view-head", "2 failed")
