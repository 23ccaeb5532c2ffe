"""The status page in Chromium, and the API on the management listener, which it uses."""

import asyncio
import json
import re
import resource

import pytest
from playwright.async_api import expect

from harness.created_sessions import Sessions, profile
from harness.gateway import run
from harness.https import listening
from harness.raw import exchange, frame, linger, read_head, upgrade
from harness.receiver import Receiver, webhook
from harness.status_page import StatusPage
from harness.tokens import bearer
from harness.waiting import eventually

JSON = {"Content-Type": "application/json"}
PAYLOADS = {"DRAWBRIDGE_STATUS_PAYLOADS": "true"}
TOPICS = {"DRAWBRIDGE_UPSTREAM_TOPIC_POINTER": "/topic"}

# Two sessions, and more than one page of further sessions without an upstream connection.
MANY = """
upstream: {{url: "{url}"}}
sessions:
  market: {{upstream: {{url: "{url}"}}}}
""" + "".join(
    f'  s{number:03}: {{{{upstream: {{{{url: "ws://127.0.0.1:1/", on_demand: true}}}}}}}}\n' for number in range(200)
)


def topical(topic, **members):
    return json.dumps({"topic": topic, **members})


# -------------------------------------------------------------------------------------------------------------- Showing


async def test_the_page_shows_what_the_api_reports(gateway, upstream, start):
    client = gateway.client()
    for name, settings in (("workers", {"share": True, "start": "earliest"}), ("reader", {"start": "earliest"})):
        await client.request("PUT", f"/v1/consumers/{name}", data=json.dumps(settings), headers=JSON)
    await client.accepted("out")
    await upstream.has_received(1)
    await upstream.push("one", "two", "three")
    held = asyncio.create_task(gateway.client().get(wait=55))
    view = await start(StatusPage(gateway))
    row = view.session("default")
    await expect(row).to_contain_text("Connected for")
    await expect(view["#sessions-form"]).to_be_hidden()
    await expect(row.locator("[data-label='Round trip']")).to_contain_text(" ms")
    await expect(row.locator("[data-label='Retained pushes']")).to_contain_text("3 (")
    await expect(view["#figures"]).to_contain_text("1 of 1")
    await expect(view["#timeline li"].first).to_contain_text("connected")
    await expect(view["#strip rect.good"]).to_have_count(1)
    await expect(view["#consumers tr"]).to_have_count(2)
    await expect(view["#consumers tr[data-key='workers'] [data-label='Lag']"]).to_have_text("3")
    waiting = view["#plots figure"].filter(has_text="Clients that wait").locator(".value")
    await expect(waiting.first).to_have_text("1")
    await upstream.push("four")
    assert (await held).status == 200
    await expect(waiting.first).to_have_text("0")
    rates = view["#plots figure"].filter(has_text="Messages per second").locator("svg")
    await expect(rates).to_have_attribute("aria-label", re.compile(r"in, from the upstream .*highest (0\.[1-9]|[1-9])"))
    await view.follow()
    await expect(waiting.last).to_have_text("1")
    assert view.errors(network=True) == []
    assert {request.url.split("/", 3)[2] for request in view.requests if not request.url.startswith("data:")} == {
        gateway.url("management").removeprefix("http://")
    }, "nothing is loaded from elsewhere"


async def test_webhooks_are_shown_among_the_consumers_with_their_problems(hooked, upstream, start):
    works, fails, gone = [
        await start(Receiver(lambda n, delivery, status=status: status)) for status in (204, 503, 410)
    ]
    gateway = await hooked(
        webhook(works, name="works"), webhook(fails, name="fails", retries=["1h"]), webhook(gone, name="gone")
    )
    await upstream.push("x")
    for receiver in (works, fails, gone):
        await receiver.has(1)
    view = await start(StatusPage(gateway))
    readers = {
        name: view[f"#consumers tr[data-key='{name}'] [data-label='Readers']"] for name in ("works", "fails", "gone")
    }
    await expect(readers["works"]).to_have_text("webhook, active")
    await expect(readers["fails"]).to_have_text(
        re.compile(r"^webhook, active: status 503, next attempt at \d\d:\d\d:\d\d$")
    )
    await expect(readers["gone"]).to_contain_text("webhook, disabled: status 410")
    assert view.errors(network=True) == []


async def test_a_failure_and_the_reconnect_are_shown_in_words(gateway, upstream, start):
    view = await start(StatusPage(gateway))
    await expect(view.session("default")).to_contain_text("Connected for")
    await upstream.close_connections(4000, "gone fishing")
    await expect(view["#session-figures"]).to_contain_text("gone fishing")
    await view.is_connected()
    await expect(view["#cause"]).to_have_text(re.compile(r"^Last failure \d+ s ago: .*gone fishing"))
    await expect(view["#timeline"]).to_contain_text("closed by the upstream with 4000")
    await expect(view["#session-figures"]).to_contain_text("Connections since the start2")
    await upstream.kill()
    await expect(view["#headline"]).to_have_text(re.compile(r"^Trying again in \d+ s: .*refused"))
    await expect(view["#cause"]).to_contain_text("attempts in a row have failed")
    await expect(view.session("default")).to_contain_text("Trying again in")
    await expect(view["#close"]).to_be_visible()
    await expect(view["#open"]).to_have_text("Connect now")
    await upstream.start()
    await view.is_connected()
    assert view.errors() == []


async def test_payloads_do_not_leave_the_gateway_unless_the_setting_says_so(gateway, upstream, start):
    view = await start(StatusPage(gateway))
    await view.follow()
    await upstream.push("SECRET-PAYLOAD")
    await expect(view["#tail li"]).to_contain_text("14 B")
    assert "SECRET" not in await view.page.content()
    await expect(view["#tail-note"]).to_contain_text("status.payloads")
    streams = [request for request in view.requests if "stream=1" in request.url]
    assert streams
    assert all("data=omit" in request.url for request in streams)
    assert view.errors(network=True) == []


async def test_the_page_of_a_follower_shows_the_holder(replicas_for, recorder, start):
    replicas = await replicas_for(2)
    holder = await replicas.holder()
    (follower,) = await replicas.followers()
    number = await recorder.push_one()

    async def has_push():
        return (await follower.client().session())["replica"]["lag_seconds"] is not None

    await eventually(has_push, what="the follower has the push")
    replica = (await follower.client().session())["replica"]
    term = replica["term"]
    rows = {}
    for member in (holder, follower):
        view = await start(StatusPage(member.gateway))
        figures = view["#session-figures"]
        await view.is_connected()
        where = "this gateway" if member is holder else "gateway {gateway} at {address}".format(**replica["holder"])
        await expect(figures).to_contain_text(f"Holder{where}, term {term}Pushes here")
        late = "" if member is holder else r", the newest push \S+ m?s late"
        await expect(figures).to_contain_text(re.compile(f"Pushes herecurrent{late}Redis, seen from hereworking"))
        await expect(figures).to_contain_text(f"{number} of {number} received")
        rows[member] = figures
        assert view.errors(network=True) == []
    # Only the follower cannot reach Redis.
    follower.network.cut()
    away = re.compile(r"Pushes herenot current.*Redis, seen from herefailed for \S.*: \S")
    await expect(rows[follower]).to_contain_text(away)
    await expect(rows[holder]).to_contain_text("Pushes herecurrentRedis, seen from hereworking")
    follower.network.heal()
    await expect(rows[follower]).to_contain_text(re.compile("Pushes herecurrent.*Redis, seen from hereworking"))
    # Now the follower becomes the holder.
    await holder.drain()
    await expect(rows[follower]).to_contain_text(re.compile("Holderthis gateway, term .*Pushes herecurrent"))
    # Between the two holders, a request of the page may get 503.
    assert view.errors() == []


# ------------------------------------------------------------------------------------------------------------- Controls


async def test_new_messages_are_shown_at_once_if_payloads_are_allowed(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={**PAYLOADS, **TOPICS})
    await upstream.push(topical("orders.a", n=1), topical("prices", n=2))
    view = await start(StatusPage(gateway))
    rows = view["#tail li"]
    await expect(rows).to_have_count(2)
    await upstream.push("third")
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text("third")
    assert view.errors(network=True) == []


async def test_opening_the_page_does_not_connect_an_idle_session(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={**PAYLOADS, "DRAWBRIDGE_UPSTREAM_ON_DEMAND": "true"}, ready=False)
    view = await start(StatusPage(gateway))
    await expect(view["#headline"]).to_contain_text("it connects when a client uses it")
    await expect(view["#tail-empty"]).to_contain_text("Follow shows the messages")
    shown = len(view.requests)
    await eventually(lambda: len(view.requests) >= shown + 4, what="the page has read the state again")
    assert view.requested("stream=1") == []
    await expect(view["#open"]).to_be_hidden()
    await view["#message"].fill("x")
    await view["#send"].click()
    await view.is_connected()


async def test_the_search_also_applies_to_later_messages(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={**PAYLOADS, **TOPICS})
    await upstream.push(topical("orders.a", n=1), topical("prices", n=2))
    view = await start(StatusPage(gateway))
    rows = view["#tail li:visible"]
    await expect(rows).to_have_count(2)
    await view["#tail-search"].fill("ORDERS")
    await expect(rows).to_have_count(1)
    await expect(view["#tail-found"]).to_have_text("1 of 2 match")
    await upstream.push(topical("orders.b", n=3), topical("prices", n=4))
    await expect(view["#tail-found"]).to_have_text("2 of 4 match")
    await expect(rows).to_have_count(2)
    # A search causes no further request.
    await view["#tail-search"].press("Enter")
    await view["#tail-search"].fill("")
    await expect(rows).to_have_count(4)
    await expect(view["#tail-found"]).to_be_hidden()
    assert len(view.requested("stream=1")) == 1
    assert view.errors(network=True) == []


async def test_every_control_of_the_message_list_works(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={**PAYLOADS, **TOPICS})
    view = await start(StatusPage(gateway))
    await view.follow()
    await upstream.push(topical("orders.a", n=1))
    rows = view["#tail li"]
    await expect(rows).to_have_count(1)
    await view["#pause"].click()
    await expect(view["#pause"]).to_have_attribute("aria-pressed", "true")
    await upstream.push("second")
    await expect(view["#tail-state"]).to_have_text("paused")
    await expect(view["#tail-count"]).to_have_text("0 per second, 2 received")
    await expect(rows).to_have_count(1)
    await view["#pause"].click()
    await expect(rows).to_have_count(2)
    await view["#clear"].click()
    await expect(rows).to_have_count(0)
    await view["#follow"].click()
    await expect(view["#tail-state"]).to_have_text("stopped")
    await expect(view["#pause"]).to_be_hidden()
    # This tail shows only messages that arrive from now on.
    await view["#tail-start"].select_option("latest")
    await view.follow()
    await upstream.push("third")
    await expect(rows).to_have_count(1)
    await expect(rows.first).to_contain_text("third")
    await view["#follow"].click()
    await view["#clear"].click()
    # Reads from the beginning, with a topic. Enter in the field starts the tail.
    await view["#tail-start"].select_option("earliest")
    await view["#tail-topic"].fill("orders.*")
    await view["#tail-topic"].press("Enter")
    await expect(rows).to_have_count(1)
    await expect(rows.locator("strong")).to_have_text("orders.a")
    await expect(rows.locator(".payload")).to_have_text('{"topic": "orders.a", "n": 1}')
    await upstream.push("unmatched", topical("orders.b"))
    await expect(rows).to_have_count(2)
    assert view.errors(network=True) == []


async def test_the_plots_have_data_from_before_the_page_was_opened(gateway, upstream, start):
    await upstream.push("one", "two", "three")
    await gateway.client().accepted("out")

    async def is_past():
        rows = (await gateway.manage("/history")).json["samples"]
        # The messages are not in the newest interval.
        return len(rows) > 1 and any(row["received_per_second"] > 0 for row in rows[:-1])

    await eventually(is_past, what="the messages are in an earlier interval")
    view = await start(StatusPage(gateway))
    figure = view["#plots figure"].filter(has_text="Messages per second")
    await expect(figure.locator("svg")).to_have_attribute("aria-label", re.compile(r"highest (0\.[1-9]|[1-9])"))
    await expect(figure.locator(".curve")).to_have_count(2)
    assert len(view.requested("/history")) == 1
    # The pointer shows the values of a sample, and its time.
    await figure.locator("svg").hover()
    await expect(figure.locator(".moment")).to_have_text(re.compile(r"^at \d\d:\d\d:\d\d$"))
    box = await figure.locator("svg").bounding_box()
    assert box["width"] > 400
    assert box["height"] > 150
    assert view.errors(network=True) == []


async def test_every_control_of_the_send_form_works(gateway_for, upstream, start):
    gateway = await gateway_for(upstream)
    view = await start(StatusPage(gateway))
    await view.is_connected()
    await view["#message"].fill("héllo")
    await view["#send-form button"].click()
    await expect(view["#send-result"]).to_contain_text(": confirmed")
    await view["#send-options summary"].click()
    await view["#send-type"].select_option("application/json")
    await view["#message"].fill('{"a":1}')
    await view["#message"].press("Control+Enter")
    assert await upstream.has_received(2) == ["héllo", '{"a":1}']
    await view["#send-type"].select_option("application/octet-stream")
    await view["#message"].fill("bytes")
    await view["#send-form button"].click()
    assert (await upstream.has_received(3))[2] == b"bytes"
    # While the session is closed, a message replaces an earlier message with the same topic.
    await view["#close"].click()
    await view["#close-dialog button[value=close]"].click()
    await view.is_closed()
    await view["#send-topic"].fill("price")
    await view["#send-ttl"].fill("600")
    for text in ("old", "new"):
        await view["#message"].fill(text)
        await view["#send-form button"].click()
        await expect(view["#send-result"]).to_contain_text(": queued")
        await expect(view.session("default").locator("[data-label='Queue']")).to_contain_text("1 (3 B)")
    await view["#open"].click()
    assert (await upstream.has_received(4))[3] == b"new"
    # The page explains a refusal in words.
    await view["#send-ttl"].fill("")
    await view["#send-topic"].fill("x" * 300)
    await view["#send-form button"].click()
    await expect(view["#send-result"]).to_contain_text("Not sent: ")
    assert view.errors() == []


async def test_sessions_can_be_chosen_opened_closed_and_paged_with_the_keyboard(gateway_for, upstream, start):
    gateway = await gateway_for(None, config=MANY.format(url=upstream.url))
    view = await start(StatusPage(gateway))
    await expect(view["#sessions tr"]).to_have_count(200)
    await view.page.keyboard.press("Tab")
    await expect(view[".skip:focus"]).to_have_text("Skip to the content")
    await view.session("market").locator("button").focus()
    await view.page.keyboard.press("Enter")
    await expect(view["#session-title"]).to_have_text("Session market")
    await view.is_connected()
    # Reading again must not move the focus. The page reads the chosen session more often than the long list.
    shown = len(view.requests)
    await eventually(
        lambda: len(view.requested("/v1/sessions/market", shown)) >= 4, what="the page reads the session twice"
    )
    assert len(view.requested("/v1/sessions?", shown)) <= 1
    await expect(view.session("market").locator("button")).to_be_focused()
    for choice, state in (("cancel", "Connected to"), ("close", "Disconnected by an operator")):
        await view["#close"].focus()
        await view.page.keyboard.press("Enter")
        await expect(view["#close-dialog button[value=cancel]"]).to_be_focused()
        await view[f"#close-dialog button[value={choice}]"].focus()
        await view.page.keyboard.press("Enter")
        await expect(view["#headline"]).to_contain_text(state)
        # The focus returns to the button. If that button is hidden now, the other button gets the focus.
        await expect(view["#close" if choice == "cancel" else "#open"]).to_be_focused()
    await eventually(lambda: upstream.closes, what="the upstream sees the close")
    await expect(view["#announcement"]).to_contain_text("market: disconnected")
    await expect(view["#close"]).to_be_hidden()
    await view.page.keyboard.press("Enter")
    await view.is_connected()
    await expect(view["#close"]).to_be_focused()
    await view["#sessions-next"].focus()
    await view.page.keyboard.press("Enter")
    await expect(view["#sessions tr"]).to_have_count(2)
    # On the last page, the button disappears, so the focus moves to the next control.
    await expect(view["#sessions-name"]).to_be_focused()
    await view["#sessions-first"].focus()
    await view.page.keyboard.press("Enter")
    await expect(view["#sessions tr"]).to_have_count(200)
    await expect(view["#sessions-next"]).to_be_focused()
    # The address of the page contains the session.
    await view.page.reload()
    await expect(view["#session-title"]).to_have_text("Session market")
    assert view.errors() == []


async def test_when_the_chosen_session_ends_no_click_acts_on_another(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, config=profile(f"{upstream.url}{{symbol}}"))
    sessions = Sessions(gateway)
    await sessions.created("made", symbol="A")
    view = await start(StatusPage(gateway))
    await view.session("made").locator("button").click()
    await expect(view["#session-title"]).to_have_text("Session made")
    await view.is_connected()
    await view["#message"].fill("for this session")
    await view["#close"].click()
    await sessions.delete("made")
    await expect(view.session("made")).to_have_count(0)
    await expect(view["#headline"]).to_contain_text("made does not exist")
    await view["#close-dialog button[value=close]"].click()
    await expect(view["#session-note"]).to_contain_text("Not changed: ")
    await view["#message"].press("Control+Enter")
    await expect(view["#send-result"]).to_contain_text("Not sent: ")
    for button in ("#open", "#close"):
        await expect(view[button]).to_be_hidden()
    for button in ("#send", "#follow"):
        await expect(view[button]).to_be_disabled()
    await expect(view["#session-title"]).to_have_text("Session made")
    assert (await sessions.get("default")).json["desired"] == "up"
    assert upstream.received == []
    # The page shows a new session with the same name as soon as it exists.
    await sessions.created("made", symbol="B")
    await view.is_connected()
    await expect(view["#close"]).to_be_visible()
    assert view.errors() == []


# --------------------------------------------------------------------------------------------------------------- Access


async def test_the_page_requests_a_token_and_keeps_it_in_the_tab(gateway_for, upstream, start, tokens):
    reader, admin = tokens.add("reader", scopes="receive"), tokens.add("admin", scopes="send,receive,admin")
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path)})
    view = await start(StatusPage(gateway, bypass_csp=True))
    await expect(view["#token-dialog"]).to_be_visible()
    await expect(view["#figures"]).to_contain_text("Retained pushes")
    await view["#token-cancel"].click()
    await expect(view["#headline"]).to_have_text("The upstream is connected")
    await expect(view["#cause"]).to_contain_text("Use a token to see")
    for part in ("#sessions-part", "#messages-part", "#consumers-part", "#details-part", "#open", "#close"):
        await expect(view[part]).to_be_hidden()
    assert await view.violations() == []

    async def use(token):
        await view["#sign-in"].click()
        await view["#token"].fill(token)
        await view["#token"].press("Enter")

    # A header field cannot contain this character.
    await use("a-token-that-was-cut\u2026")
    assert await view["#token"].evaluate("field => field.validity.patternMismatch")
    assert await view.page.evaluate("sessionStorage.length") == 0
    await view["#token-cancel"].click()
    await use("wrong-but-long-enough-to-be-one")
    await expect(view["#token-dialog"]).to_be_visible()
    await view["#token"].fill(reader)
    await view["#token-dialog button[value=use]"].click()
    await expect(view.session("default")).to_contain_text("Connected for")
    await expect(view["#alert"]).to_be_hidden()
    # The page hides the controls that the token does not allow.
    await view.is_connected()
    for control in ("#open", "#close", "#send-form"):
        await expect(view[control]).to_be_hidden()
    await view.follow()
    await upstream.push("for those who may receive")
    await expect(view["#tail"]).to_contain_text("25 B")
    # The tab keeps the token over a reload, but other tabs do not get it.
    await view.page.reload()
    await expect(view.session("default")).to_contain_text("Connected for")
    kept = "({ session: { ...sessionStorage }, local: { ...localStorage }, cookie: document.cookie })"
    assert await view.page.evaluate(kept) == {"session": {"drawbridge-token": reader}, "local": {}, "cookie": ""}
    other = await view.page.context.new_page()
    await other.goto(gateway.url("management") + "/")
    await expect(other.locator("#token-dialog")).to_be_visible()
    await other.close()
    await use(admin)
    await view["#close"].click()
    await view["#close-dialog button[value=close]"].click()
    await view.is_closed()
    await view["#tail-start"].select_option("earliest")
    await view.follow()
    await expect(view["#tail"]).to_contain_text("25 B")
    # The page removes all data that it has read with the token.
    await view["#sign-out"].click()
    await expect(view["#sign-out"]).to_be_hidden()
    for part in ("#sessions-part", "#messages-part", "#consumers-part", "#details-part"):
        await expect(view[part]).to_be_hidden()
    for rows in ("#sessions tr", "#timeline li", "#consumers tr", "#tail li"):
        await expect(view[rows]).to_have_count(0)
    assert await view["#message"].input_value() == ""
    assert "default" not in await view["main"].inner_text()
    assert await view.page.evaluate("sessionStorage.length") == 0
    assert not any(token in request.url for request in view.requests for token in (reader, admin))
    assert view.errors() == []


@pytest.mark.parametrize("path", ["/v1/session", "/%76%31/session", "/v1/messages?wait=0"])
async def test_the_management_listener_serves_the_api_by_the_same_rules(gateway_for, upstream, tokens, path):
    token = tokens.add("a", scopes="receive")
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path)})
    for listener in ("api", "management"):
        client = gateway.client(listener)
        (await client.request("GET", path)).problem(401)
        assert (await client.request("GET", path, headers=bearer(token))).status == 200
        (await client.request("POST", "/v1/messages", data="x", headers=bearer(token))).problem(403)


async def test_a_restricted_socket_keeps_the_api_closed_on_management(gateway_for, upstream, tmp_path):
    gateway = await gateway_for(upstream, "--listen", f"unix:{tmp_path}/api")
    assert "access-not-configured" in (await gateway.manage("/v1/session")).problem(403)["type"]
    both = await gateway_for(
        upstream, "--listen", f"unix:{tmp_path}/api2", "--management", f"unix:{tmp_path}/management"
    )
    assert (await both.manage("/v1/session")).status == 200
    (tmp_path / "public").mkdir()
    wider = await gateway_for(
        upstream, "--listen", f"unix:{tmp_path}/api3", "--management", f"unix:{tmp_path}/public/management"
    )
    (await wider.manage("/v1/session")).problem(403)


async def test_a_required_client_certificate_keeps_the_api_closed_on_management(
    gateway_for, upstream, authority, certificate, tmp_path
):
    arguments, env = listening(certificate)
    # The second listener is no reason to open the API at an IP address.
    arguments += ("--listen", f"unix:{tmp_path}/api")
    env |= {
        "DRAWBRIDGE_LISTENERS_TLS_CLIENT_CA": str(authority.path),
        "DRAWBRIDGE_LISTENERS_TLS_CLIENT_CERTIFICATES": "required",
    }
    gateway = await gateway_for(upstream, *arguments, env=env)
    for method in ("GET", "PATCH"):
        response = await gateway.client("management").request(method, "/v1/session", data='{"desired":"down"}')
        assert "access-not-configured" in response.problem(403)["type"]
    assert (await gateway.manage("/livez")).status == 200


async def test_a_token_that_was_refused_is_not_repeated(gateway_for, upstream, start, tokens):
    """Attempts with wrong tokens are limited by address, so a tab that stays open must not use them up."""
    tokens.add("reader", scopes="receive")
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path)})
    view = await start(StatusPage(gateway))
    await view.page.clock.install()
    for token, reason in ((None, "asks its clients for a token"), ("a-token-that-has-expired", "not valid")):
        if token:
            await view["#token"].fill(token)
            await view["#token-dialog button[value=use]"].click()
        await expect(view["#token-reason"]).to_contain_text(reason)
        shown = len(view.requests)
        for _ in range(20):
            await view.page.clock.fast_forward(60_000)
        await eventually(lambda shown=shown: len(view.requests) >= shown + 3, what="the figures are read")
        assert view.requested("/v1/", shown) == []
    await expect(view["#cause"]).to_contain_text("not valid")


@pytest.mark.parametrize("clients", ["127.0.0.1:0", "0.0.0.0:0"])
async def test_a_network_listener_for_probes_does_not_open_the_api(gateway_for, upstream, clients):
    """This also applies if other machines can connect to both listeners, since a firewall may be between them."""
    listeners = ("--listen", clients, "--management", "0.0.0.0:0", "--access", "none")
    gateway = await gateway_for(upstream, *listeners, env={"DRAWBRIDGE_HTTP_HOSTS": ""})
    address = ("127.0.0.1", gateway.address("management")[1])
    for path, status in ((b"/v1/session", b"403"), (b"/livez", b"200")):
        response = await exchange(
            address, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert response.data.startswith(b"HTTP/1.1 " + status)


async def test_a_plain_management_listener_beside_https_causes_a_warning(gateway_for, upstream, tokens, certificate):
    env = {
        "DRAWBRIDGE_AUTHENTICATION_TOKENS": str(tokens.path),
        "DRAWBRIDGE_LISTENERS_TLS_CERTIFICATE": str(certificate.chain),
        "DRAWBRIDGE_LISTENERS_TLS_KEY": str(certificate.key),
    }
    warning = "without HTTPS on a management listener"
    https = ("--listen-https", "127.0.0.1:0")
    gateway = await gateway_for(upstream, *https, "--management", "0.0.0.0:0", env=env)
    assert warning in gateway.output
    assert warning not in (await gateway_for(upstream, *https, env=env)).output


async def test_streams_leave_connections_for_probes_if_the_limit_on_open_files_is_low(gateway_for, upstream):
    gateway = await gateway_for(upstream, prefix=("sh", "-c", 'ulimit -n 200; exec "$0" "$@"'))
    limits = await gateway.logs(lambda record: "management_connections" in record, what="the limit in effect")
    connections = limits["management_connections"]
    assert 4 < connections < 64
    crowd = []
    request = b"GET /v1/messages HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
    try:
        statuses = []
        # The harness uses one connection itself.
        for _ in range(connections - 2):
            crowd.append(await asyncio.open_connection(*gateway.address("management")))
            crowd[-1][1].write(request)
            statuses.append((await asyncio.wait_for(crowd[-1][0].readline(), 30)).split()[1])
        assert statuses.count(b"200") == connections // 2
        assert set(statuses[connections // 2 :]) == {b"429"}
        assert (await gateway.client("management").request("GET", "/livez")).status == 200
    finally:
        for _, writer in crowd:
            writer.transport.abort()


# ---------------------------------------------------------------------------------------------------- Hostile upstreams

HOSTILE = [
    "<img src=x onerror=\"window.hacked=1\">",
    "</script><script>window.hacked=1</script>",
    "<svg/onload=window.hacked=1><b>bold</b>",
    "\u202etxet desrever\u2066\u200b\ufeff",
    "\x00\x1b[31mred\x7f\u2028",
    "e" + "\u0301" * 1000,
    '{"__proto__":{"hacked":1},"a":"<b>x</b>"}',
]  # fmt: skip


async def test_hostile_payloads_topics_and_close_reasons_are_shown_as_text(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={**PAYLOADS, **TOPICS})
    view = await start(StatusPage(gateway))
    await view.follow()
    await upstream.push(*HOSTILE, *(topical(text[:50]) for text in HOSTILE), "<b>" * 100_000, b"<b>bytes</b>")
    rows = view["#tail li"]
    await expect(rows).to_have_count(2 * len(HOSTILE) + 2)
    texts = await view["#tail .payload"].all_text_contents()
    assert '<img src=x onerror="window.hacked=1">' in texts
    assert r"\u{202e}txet desrever\u{2066}\u{200b}\u{feff}" in texts
    assert r"\u{0}\u{1b}[31mred\u{7f}\u{2028}" in texts
    assert max(map(len, texts)) < 2100
    topics = await view["#tail strong"].all_text_contents()
    assert "<svg/onload=window.hacked=1><b>bold</b>" in topics
    await upstream.close_connections(4000, "<b>bye</b><script>hacked=1</script>")
    await expect(view["#session-figures"]).to_contain_text("<b>bye</b><script>hacked=1</script>")
    await expect(view["#timeline"]).to_contain_text("closed by the upstream with 4000")
    assert await view.page.evaluate("[typeof hacked, typeof ({}).hacked]") == ["undefined", "undefined"]
    assert await view["main b, main img, main script, main svg [onload]"].count() == 0
    assert view.errors() == []


async def test_a_link_cannot_show_its_own_text_on_the_page(gateway, start):
    view = await start(StatusPage(gateway))
    for text in ("Your%20token%20has%20leaked:%20call%20+1", "..", "%2e%2e/x", "<b>x", "x" * 65):
        await view.page.goto(f"{gateway.url('management')}/#{text}")
        await view.page.reload()
        await expect(view["#session-title"]).to_have_text("Session default")
    await view.page.goto(f"{gateway.url('management')}/#other")
    await view.page.reload()
    await expect(view["#headline"]).to_have_text("The session other does not exist.")


# ----------------------------------------------------------------------------------------------------------------- Load


async def create(gateway, names):
    """Creates sessions of the profile `market` with pipelined requests."""
    reader, writer = await asyncio.open_connection(*gateway.address("api"))
    body = b'{"profile":"market","variables":{"symbol":"A"}}'
    head = "PUT /v1/sessions/{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n"

    async def send():
        for name in names:
            writer.write(head.format(name, len(body)).encode() + body)
            await writer.drain()

    sending = asyncio.create_task(send())
    for name in names:
        head_of_response, fields = await asyncio.wait_for(read_head(reader), 60)
        response = await reader.readexactly(int(fields["content-length"]))
        assert head_of_response.startswith(b"HTTP/1.1 201"), (name, response)
    await sending
    writer.close()


@pytest.mark.load
async def test_ten_thousand_sessions_are_paged_and_filtered(gateway_for, upstream, start, measured):
    """There are fewer sessions if the limit on open files is low, since each session reserves three descriptors."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    total = min(10_000, (most - 2_000) // 3 // 100 * 100)
    assert total > 1_000, "the limit on open files is too low for this test"
    created = f"created_sessions: {{total: {total}, per_principal: {total}}}\nhttp: {{connections: 256}}\n"
    config = profile(f"{upstream.url}{{symbol}}", extra=", on_demand: true") + created
    gateway = await gateway_for(upstream, config=config, prefix=("sh", "-c", f'ulimit -n {most}; exec "$0" "$@"'))
    await create(gateway, [f"s{number:05}" for number in range(total)])
    view = await start(StatusPage(gateway))
    rows = view["#sessions tr"]
    sizes = []

    async def note(response):
        if "/v1/sessions?" in response.url:
            sizes.append(len(await response.body()))

    view.page.on("response", note)

    async def shows(first, last, count=200):
        await expect(rows).to_have_count(count)
        await expect(rows.first.locator("button")).to_have_text(first)
        await expect(rows.last.locator("button")).to_have_text(last)

    await expect(view["#figures"]).to_contain_text(f"1 of {total + 1:,}")
    await shows("default", "s00198")
    await expect(view["#sessions-previous"]).to_be_hidden()
    await view["#sessions-next"].click()
    await shows("s00199", "s00398")
    await view["#sessions-next"].click()
    await shows("s00399", "s00598")
    await expect(view["#sessions-note"]).to_contain_text("page 3")
    await view["#sessions-previous"].click()
    await shows("s00199", "s00398")
    await view["#sessions-first"].click()
    await shows("default", "s00198")
    # Finds one of all sessions by the beginning of its name.
    await view["#sessions-name"].fill("s0087")
    await shows("s00870", "s00879", 10)
    await rows.nth(6).locator("button").click()
    await expect(view["#session-title"]).to_have_text("Session s00876")
    await expect(view["#headline"]).to_contain_text("Idle for")
    await view["#message"].fill("connect")
    await view["#send"].click()
    await view.is_connected()
    await view["#sessions-name"].fill("")
    await view["#sessions-ready"].select_option("true")
    await shows("default", "s00876", 2)
    await view["#sessions-ready"].select_option("false")
    await view["#sessions-name"].fill("s0087")
    await shows("s00870", "s00879", 9)
    await view["#sessions-name"].fill("no such name")
    await expect(rows).to_have_count(0)
    await expect(view["#sessions-note"]).to_contain_text("None that you may see")
    await view["#sessions-name"].fill("")
    await view["#sessions-ready"].select_option("")
    await shows("default", "s00198")
    lists = view.requested("/v1/sessions?")
    assert all("limit=200" in request.url for request in lists)
    assert max(sizes) < 200 * 1024
    elements = await view["*"].count()
    measured(f"{total} sessions: a page of their list has {max(sizes)} bytes, the status page {elements} elements")
    assert view.errors() == []


async def test_ten_thousand_messages_a_second_do_not_freeze_the_page(gateway_for, raw_upstream, start, measured):
    # The flood ends after the controls have been used, but not before `least` messages.
    least, sent, go, end, is_over = 30_000, 0, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def flood(reader, writer):
        nonlocal sent
        await upgrade(reader, writer)
        await go.wait()
        began = asyncio.get_running_loop().time()
        while sent < least or not end.is_set():
            # 100 messages every 10 ms, or as many as should have been sent by now.
            due = int((asyncio.get_running_loop().time() - began) * 10_000) + 100
            writer.write(b"".join(frame(1, b'{"number":%d,"text":"%s"}' % (n, b"x" * 40)) for n in range(sent, due)))
            sent = due
            await writer.drain()
            await asyncio.sleep(0.01)
        is_over.set()
        await linger(reader)

    upstream = await raw_upstream(flood)
    gateway = await gateway_for(upstream, env=PAYLOADS)
    view = await start(StatusPage(gateway))
    await view.follow()
    debugger = await view.page.context.new_cdp_session(view.page)
    await debugger.send("Performance.enable")

    async def metric(name):
        await debugger.send("HeapProfiler.collectGarbage")
        metrics = (await debugger.send("Performance.getMetrics"))["metrics"]
        return next(item["value"] for item in metrics if item["name"] == name)

    before = await metric("JSHeapUsedSize")
    go.set()
    await expect(view["#tail li"]).to_have_count(200)
    # The controls work while messages arrive.
    for pressed in ("true", "false"):
        await view["#pause"].click()
        await expect(view["#pause"]).to_have_attribute("aria-pressed", pressed)
    await view["#message"].fill("typed meanwhile")
    await view.session("default").locator("button").click()
    assert not is_over.is_set()
    end.set()
    rows = []
    while not is_over.is_set():
        rows.append(await view["#tail li"].count())
    await expect(view["#tail li"].first).to_contain_text(f'"number":{sent - 1},')
    assert max(rows, default=200) <= 200
    grown = await metric("JSHeapUsedSize") - before
    assert grown < 20 << 20, f"{grown} bytes for {sent} messages"
    await expect(view["#tail-count"]).to_contain_text("the last 200 shown")
    measured(f"heap of the page after {sent} messages: {grown / 1e6:+.1f} MB")
    assert view.errors() == []
    # The upstream would not respond to the closing handshake.
    await gateway.kill()


# -------------------------------------------------------------------------------------------------------------- Restart


async def test_the_page_reconnects_to_a_restarted_gateway(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env=PAYLOADS)
    view = await start(StatusPage(gateway))
    await view.follow()
    await upstream.push("before")
    await expect(view["#tail .payload"]).to_have_text("before")
    times = "[...document.querySelectorAll('#timeline time')].map(e => e.dateTime)"
    before = await view.page.evaluate(times)
    port = gateway.address("management")[1]

    async def is_new():
        now = await view.page.evaluate(times)
        return now and min(now) > max(before)

    await gateway.kill()
    await expect(view["#headline"]).to_have_text("The gateway does not respond")
    await expect(view["#page"]).to_have_text("This page has no response")
    await gateway_for(upstream, "--management", f"127.0.0.1:{port}")
    # The stream continues, and reports that the pushes from before the restart are missing. The new process has a
    # different setting, so the page no longer requests payloads.
    await expect(view["#tail"]).to_contain_text("missing (restart)")
    await upstream.push("SECRET-PAYLOAD")
    await expect(view["#tail li"].first).to_contain_text("14 B")
    assert "SECRET" not in await view.page.content()
    await expect(view["#tail-state"]).to_have_text("following")
    await expect(view["#page"]).to_have_text("This page is up to date")
    await expect(view["#alert"]).to_be_hidden()
    # The transitions and the curves come from the new process.
    await view.is_connected()
    await eventually(is_new, what="the transitions are those of the new process")
    assert len(view.requested("/history")) >= 2
    assert view.errors() == []


async def test_a_restart_is_detected_even_if_the_new_process_is_older_than_the_last_figures(gateway, start):
    view = await start(StatusPage(gateway))
    await expect(view.session("default")).to_contain_text("Connected for")

    async def other(route):
        response = await route.fetch()
        figures = await response.json()
        figures["instance"] += 1
        figures["seconds"] += 1000
        figures["messages"]["received"] += 1_000_000
        await route.fulfill(response=response, json=figures)

    await view.page.route(gateway.url("management") + "/", other)
    shown = len(view.requests)
    await expect(view["#announcement"]).to_have_text("The gateway was restarted.")
    await eventually(lambda: view.requested("/history", shown), what="the history is read again")


async def test_after_a_refusal_the_page_waits_and_reports_it_once(gateway, start):
    view = await start(StatusPage(gateway))
    await expect(view.session("default")).to_contain_text("Connected for")

    async def refuse(route):
        fields = {"Retry-After": "60", "Content-Type": "application/problem+json"}
        await route.fulfill(status=429, headers=fields, body='{"detail":"too many requests"}')

    await view.page.route("**/v1/**", refuse)
    await expect(view["#alert"]).to_have_text("too many requests")
    watch = "new MutationObserver(all => window.changes += all.length).observe(document.getElementById('alert'), all)"
    every = "const all = { attributes: true, childList: true, characterData: true, subtree: true }"
    await view.page.evaluate(f"{{ {every}; window.changes = 0; {watch}; }}")
    shown = len(view.requests)
    await eventually(lambda: len(view.requests) >= shown + 2, what="the figures are read again")
    assert view.requested("/v1/", shown) == []
    assert await view.page.evaluate("changes") == 0
    await expect(view["#alert"]).to_be_visible()


async def test_a_quiet_stream_is_kept_for_as_long_as_its_heartbeats_may_take(gateway_for, upstream, start):
    gateway = await gateway_for(upstream, env={"DRAWBRIDGE_DELIVERY_STREAM_HEARTBEAT": "10m"})
    view = await start(StatusPage(gateway))
    await view.page.clock.install()
    await view.follow()
    await view.page.clock.fast_forward(5 * 60 * 1000)
    await upstream.push("late")
    await expect(view["#tail li"]).to_contain_text("4 B")
    assert len(view.requested("stream=1")) == 1


# -------------------------------------------------------------------------------------------------------- Accessibility


async def test_the_page_is_accessible(gateway_for, upstream, start):
    """axe finds nothing in both colour schemes, and the page needs no sideways scrolling at 360 pixels."""
    gateway = await gateway_for(
        upstream, config='sessions: {broken: {upstream: {url: "ws://127.0.0.1:1/"}}}\n', env={**PAYLOADS, **TOPICS}
    )
    await gateway.client().request("PUT", "/v1/consumers/a", data='{"share":true}', headers=JSON)
    # The page's policy would refuse axe, which is injected as a script.
    view = await start(StatusPage(gateway, bypass_csp=True))
    await view.follow()
    await upstream.push(topical("a-topic-" + "x" * 200, long="y" * 300), "z" * 500, b"\x00" * 300)
    await expect(view["#tail li"]).to_have_count(3)
    await expect(view["#consumers tr"]).to_have_count(1)
    await expect(view.session("broken")).to_contain_text("refused")
    outside = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
    visible = " && e.checkVisibility() && !e.closest('thead, .skip, svg')).map(e => e.outerHTML.slice(0, 200))"
    for scheme, width in (("light", 1280), ("dark", 1280), ("dark", 360), ("light", 360)):
        await view.page.emulate_media(color_scheme=scheme)
        await view.page.set_viewport_size({"width": width, "height": 800})
        if (scheme, width) in (("light", 1280), ("dark", 360)):
            assert await view.violations() == [], (scheme, width)
        assert await view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await view.page.evaluate(outside + visible) == []
    # The dialogs at 360 pixels in the light scheme, and the wide page behind a dialog in the dark scheme.
    await view["#close"].click()
    assert await view.violations() == []
    await view["#close-dialog button[value=cancel]"].click()
    await view.page.emulate_media(color_scheme="dark")
    await view.page.set_viewport_size({"width": 1280, "height": 800})
    await view["#close"].click()
    assert await view.violations() == []
    await view["#close-dialog button[value=cancel]"].click()
    # There is no authentication.
    for button in ("#sign-in", "#sign-out"):
        await expect(view[button]).to_be_hidden()
    assert view.errors(network=True) == []


async def test_curl_gets_text(gateway):
    response = await gateway.manage("/")
    assert response.headers["Content-Type"].startswith("text/plain")
    assert response.body.startswith(b"drawbridge ")


async def test_the_setting_of_payloads_is_checked(upstream):
    status, _, err = await run(
        "check-config", "--upstream", upstream.url, env={"DRAWBRIDGE_STATUS_PAYLOADS": "perhaps"}
    )
    assert status == 78
    assert "status.payloads" in err
