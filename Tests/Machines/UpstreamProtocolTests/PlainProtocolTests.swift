import ByteStreams
import Calls
import Continuity
import JSONCodec
import Testing
import UpstreamProtocol

@Suite struct PlainProtocolTests {
  private var conventions = UpstreamConventions()
  private var memory = ProtocolMemory(SubscriptionRules())

  private func template(_ text: String, _ place: Template.Context = .opening) throws -> Template {
    try Template(text, in: place, environment: [:])
  }

  private func text(_ payload: ByteString?) -> String? { payload.map { $0.bytes.text() } }

  private func receive(_ text: String, _ spoken: inout PlainProtocol, _ memory: inout ProtocolMemory) -> ProtocolEvent {
    spoken.receive(Array(text.utf8).span, kind: .text, &memory)
  }

  /// The response to a challenge contains a value of the challenge. The following steps, which expect no response, are
  /// sent at once.
  @Test mutating func sendsSetupMessagesUpToTheFirstThatAwaitsAResponse() throws {
    conventions.onOpen = [.init(), .init(), .init()]
    conventions.onOpen[0].expect = Matcher([.prefix("{\"challenge\"")])
    conventions.onOpen[1].send = try template("answer ${string:/challenge} with ${credential}")
    conventions.onOpen[2].send = try template("subscribe")
    var spoken = PlainProtocol(conventions)
    var values = TemplateValues()
    values.credential = Array("secret".utf8)
    spoken.begin(connection: 1, values)

    try spoken.prepareSetup(from: 0, memory, now: 0)
    #expect(spoken.beginSetup(step: 0).isEmpty && spoken.awaitedStep == 0)
    #expect(receive("hello", &spoken, &memory) == .push)
    #expect(receive("{\"challenge\":\"x1\"}", &spoken, &memory) == .setupResponse)
    try spoken.prepareSetup(from: 1, memory, now: 0)
    #expect(spoken.awaitedStep == nil)
    #expect(text(spoken.beginSetup(step: 1).first?.payload) == "answer x1 with secret")
    #expect(text(spoken.beginSetup(step: 2).first?.payload) == "subscribe" && spoken.awaitedStep == nil)
  }

  @Test mutating func namesTheStepThatCannotBeSent() throws {
    conventions.onOpen = [.init(), .init()]
    conventions.onOpen[0].send = try template("fine")
    conventions.onOpen[1].send = try template("${credential}")
    var spoken = PlainProtocol(conventions)
    #expect(throws: SetupError(step: 1, reason: .noCredential)) { try spoken.prepareSetup(from: 0, memory, now: 0) }
  }

  @Test mutating func showsTheBeginningOfARefusal() throws {
    conventions.onOpen = [.init()]
    conventions.onOpen[0].expect = Matcher([.text("ok")])
    conventions.onOpen[0].refuse = Matcher([.prefix("no")])
    var spoken = PlainProtocol(conventions)
    try spoken.prepareSetup(from: 0, memory, now: 0)
    _ = spoken.beginSetup(step: 0)
    #expect(receive("no way", &spoken, &memory) == .refused(text: "no way", isCut: false))
    let long = "no" + String(repeating: "x", count: 1_000)
    #expect(receive(long, &spoken, &memory) == .refused(text: String(long.prefix(256)), isCut: true))
  }

  @Test mutating func endsTheConnectionAfterAFailure() throws {
    conventions.onOpen = [.init()]
    conventions.onOpen[0].expect = Matcher([.prefix("timeout ok")])
    conventions.failures = [
      .init(match: Matcher([.prefix("timeout")]), cause: "too late"), .init(match: Matcher([.prefix("t")]), cause: "t"),
    ]
    conventions.server.match = Matcher([.text("tick")])
    var spoken = PlainProtocol(conventions)
    #expect(spoken.capabilities.contains(.examination))
    try spoken.prepareSetup(from: 0, memory, now: 0)
    _ = spoken.beginSetup(step: 0)
    #expect(receive("timeout ok", &spoken, &memory) == .setupResponse)
    #expect(receive("timeout 5", &spoken, &memory) == .ended("the upstream ended the session: too late"))
    #expect(receive("tick", &spoken, &memory) == .ended("the upstream ended the session: t"))
    #expect(receive("no timeout", &spoken, &memory) == .push)
  }

  /// The response to the first step shows whether the service has resumed. If it has not, the protocol reports the loss
  /// before the setup continues.
  @Test mutating func reportsWhetherTheServiceHasResumed() throws {
    conventions.onOpen = [.init(), .init()]
    conventions.onOpen[0].expect = Matcher(anyOf: [[.prefix("new")], [.prefix("resumed")]])
    conventions.onOpen[0].resumed = Matcher([.prefix("resumed")])
    conventions.onOpen[1].expect = Matcher([.prefix("ok")])
    var spoken = PlainProtocol(conventions)
    #expect(spoken.capabilities.contains([.continuations, .severalMeanings]))
    #expect(spoken.continuations.values.areComplete)
    for (response, isResumed) in [("resumed 1", true), ("new 1", false)] {
      try spoken.prepareSetup(from: 0, memory, now: 0)
      _ = spoken.beginSetup(step: 0)
      #expect(receive("push", &spoken, &memory) == .push)
      var event = receive(response, &spoken, &memory)
      if !isResumed {
        guard case .news(let news) = event else { Issue.record("\(event)"); return }
        #expect(news.isStateLost)
        let next = spoken.next(&memory)
        event = try #require(next)
      }
      #expect(event == .setupResponse && spoken.next(&memory) == nil)
      try spoken.prepareSetup(from: 1, memory, now: 0)
      _ = spoken.beginSetup(step: 1)
      #expect(receive("ok", &spoken, &memory) == .setupResponse && spoken.next(&memory) == nil)
    }
    conventions.onOpen[0].resumed = nil
    #expect(PlainProtocol(conventions).continuations.isEmpty)
  }

  @Test mutating func acknowledgesPushes() throws {
    let id = try #require(JSONPointer("/id"))
    conventions.captures = [CaptureRule("id", ValueSource(id))]
    conventions.acknowledgements = [
      .init(
        match: Matcher([.prefix("{\"a\"")]), send: try template("a ${raw:/id} ${capture:id}", .reply), when: .stored),
      .init(match: Matcher([.present(id)]), send: try template("b ${string:/id}", .reply), when: .received),
    ]
    var spoken = PlainProtocol(conventions)
    #expect(spoken.capabilities.contains([.acknowledgements, .examination]))
    var (acknowledgements, delays): ([String?], [Bool]) = ([], [])
    for message in ["{\"a\":1,\"id\":\"x\"}", "none", "{\"id\":7}"] {
      #expect(receive(message, &spoken, &memory) == .push)
      guard let acknowledgement = try spoken.takeAcknowledgement(memory, now: 0) else { continue }
      acknowledgements.append(text(acknowledgement.frame.payload))
      delays.append(acknowledgement.isAfterStoring)
      #expect(try spoken.takeAcknowledgement(memory, now: 0) == nil)
    }
    #expect(acknowledgements == ["a \"x\" x", "b 7"] && delays == [true, false])
    #expect(receive("{\"a\":1}", &spoken, &memory) == .push)
    #expect(throws: TemplateError.noCaptureInPush("id")) { try spoken.takeAcknowledgement(memory, now: 0) }
    #expect(try spoken.takeAcknowledgement(memory, now: 0) == nil)
  }

  /// Otherwise, an acknowledgement could allow a service to delete a push that the gateway does not have.
  @Test mutating func anAcknowledgementHasNoValueOfAnotherPush() throws {
    let (id, session) = (try #require(JSONPointer("/id")), try #require(JSONPointer("/session")))
    conventions.captures = [CaptureRule("id", ValueSource(id)), CaptureRule("session", ValueSource(session))]
    conventions.captures[0].isKept = true
    conventions.onOpen = [.init()]
    conventions.onOpen[0].expect = Matcher([.present(session)])
    conventions.acknowledgements = [
      .init(
        match: Matcher([.prefix("{")]), send: try template("${capture:session} ${capture:id}", .reply), when: .stored)
    ]
    var spoken = PlainProtocol(conventions)
    memory.captures = ["id": CapturedValue(Array("0".utf8), isText: false)]
    try spoken.prepareSetup(from: 0, memory, now: 0)
    _ = spoken.beginSetup(step: 0)
    #expect(receive("{\"session\":7}", &spoken, &memory) == .setupResponse)
    for (message, acknowledgement) in [("{}", nil), ("{\"id\":1}", "7 1"), ("{}", nil), ("{\"id\":1}", "7 1")] {
      #expect(receive(message, &spoken, &memory) == .push)
      if let acknowledgement {
        let taken = try spoken.takeAcknowledgement(memory, now: 0)
        #expect(text(taken?.frame.payload) == acknowledgement)
      } else {
        #expect(throws: TemplateError.noCaptureInPush("id")) { try spoken.takeAcknowledgement(memory, now: 0) }
      }
    }
  }

  @Test mutating func rendersItsLastMessages() throws {
    conventions.onClose = [try template("bye ${credential} ${sequence}", .closing), Template(binary: [0xE0, 0])]
    conventions.onOpen = [.init()]
    conventions.onOpen[0].send = Template(binary: [0xFF])
    var spoken = PlainProtocol(conventions)
    #expect(throws: TemplateError.noCredential) { try spoken.lastMessages(memory, now: 0) }
    var values = TemplateValues()
    values.credential = Array("secret".utf8)
    spoken.begin(connection: 1, values)
    let last = try spoken.lastMessages(memory, now: 0)
    #expect(last.map(\.kind) == [.text, .binary] && text(last[0].payload) == "bye secret 2")
    func bytes(_ frame: ProtocolFrame?) -> [UInt8] { frame.map { [UInt8](copying: $0.payload.bytes) } ?? [] }
    #expect(bytes(last[1]) == [0xE0, 0])
    try spoken.prepareSetup(from: 0, memory, now: 0)
    let setup = spoken.beginSetup(step: 0)
    #expect(setup.map(\.kind) == [.binary] && bytes(setup.first) == [0xFF])
  }

  @Test mutating func repliesToTheHeartbeatThatItReceived() throws {
    conventions.server.match = Matcher([.prefix("{\"ping\"")])
    conventions.server.reply = try template("{\"pong\":${raw:/ping}}", .reply)
    var spoken = PlainProtocol(conventions)
    #expect(!spoken.capabilities.contains(.anyMessageIsHeartbeat))
    #expect(receive("{\"ping\":12}", &spoken, &memory) == .heartbeat)
    #expect(text(try spoken.heartbeatReply(memory, now: 0)) == "{\"pong\":12}")
    #expect(throws: TemplateError.self) { try spoken.heartbeatReply(memory, now: 0) }
  }

  @Test mutating func countsItsHeartbeats() throws {
    conventions.client.message = try template("beat ${counter} at ${now}", .heartbeat)
    var spoken = PlainProtocol(conventions)
    #expect(text(try spoken.heartbeat(3, memory, now: 1_700)) == "beat 3 at 1700")
    #expect(try PlainProtocol(UpstreamConventions()).heartbeatOrNil(memory) == nil)
  }

  /// Setup messages, heartbeats and calls use the same numbers, one for each message.
  @Test mutating func numbersItsMessages() throws {
    conventions.correlation = .jsonRPC(.sequence)
    conventions.onOpen = [.init(), .init()]
    conventions.onOpen[0].send = try template(#"{"id":${sequence},"ref":"${json:${sequence}}"}"#)
    conventions.onOpen[1].send = try template(#"{"id":${sequence}}"#)
    conventions.client.message = try template(#"{"id":${sequence},"beat":${counter}}"#, .heartbeat)
    var spoken = PlainProtocol(conventions)
    #expect(spoken.capabilities.isSuperset(of: [.encoding, .numberedIDs, .examination]))
    try spoken.prepareSetup(from: 0, memory, now: 0)
    #expect(text(spoken.beginSetup(step: 0).first?.payload) == #"{"id":1,"ref":"1"}"#)
    #expect(text(spoken.beginSetup(step: 1).first?.payload) == #"{"id":2}"#)
    let call = CallID(.string, random: 7)
    let request = #"{"id":\#(String(decoding: call.token, as: UTF8.self)),"a":[]}"#
    #expect(encoded(request, &spoken) == #"{"id":3,"a":[]}"#)
    #expect(text(try spoken.heartbeat(1, memory, now: 0)) == #"{"id":4,"beat":1}"#)
    #expect(encoded(#"{"id":1}"#, &spoken) == #"{"id":5}"# && encoded("hello", &spoken) == "hello")
    #expect(receive(#"{"id":3,"x":1}"#, &spoken, &memory) == .push)
    #expect(receive(#"{"id":3,"result":1}"#, &spoken, &memory) == .reply(call, 6..<7))
    #expect(receive(#"{"id":3,"result":1}"#, &spoken, &memory) == .push)
    // Without calls, a session can number its own messages, too.
    conventions.correlation = nil
    var other = PlainProtocol(conventions)
    #expect(!other.capabilities.contains(.encoding))
    #expect(text(try other.heartbeat(1, memory, now: 0)) == #"{"id":1,"beat":1}"#)
    #expect(text(try other.heartbeat(2, memory, now: 0)) == #"{"id":2,"beat":2}"#)
  }

  private func encoded(_ text: String, _ spoken: inout PlainProtocol) -> String {
    var output = ByteQueue()
    let result = spoken.encode(Array(text.utf8).span, kind: .text, isCall: true) { parts, _ in parts.append(to: &output)
    }
    #expect(result == .written)
    return output.bytes.text()
  }

  /// The cursor outlives the connection. The protocol object of the next connection uses it.
  @Test mutating func remembersTheCursorOfPushes() throws {
    conventions.cursor.pointer = JSONPointer("/id")
    conventions.cursor.initial = try template("start", .value)
    conventions.onOpen = [.init()]
    conventions.onOpen[0].send = try template("resume ${cursor}")
    var first = PlainProtocol(conventions)
    try first.prepareSetup(from: 0, memory, now: 0)
    #expect(text(first.beginSetup(step: 0).first?.payload) == "resume start")
    #expect(receive("{\"id\":\"a7\"}", &first, &memory) == .push)
    var second = PlainProtocol(conventions)
    try second.prepareSetup(from: 0, memory, now: 0)
    #expect(text(second.beginSetup(step: 0).first?.payload) == "resume a7")
  }
}

extension PlainProtocol {
  fileprivate func heartbeatOrNil(_ memory: ProtocolMemory) throws -> ByteString? {
    var copy = self
    return try copy.heartbeat(1, memory, now: 0)
  }
}
