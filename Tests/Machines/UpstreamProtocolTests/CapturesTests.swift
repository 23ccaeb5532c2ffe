import ByteStreams
import JSONCodec
import Testing
import UpstreamProtocol

@Suite struct CapturesTests {
  private var memory = ProtocolMemory(SubscriptionRules())

  private func rule(_ name: String, _ pointer: String, match: String? = nil, isKept: Bool = false) throws -> CaptureRule
  {
    let source = ValueSource(try #require(JSONPointer(pointer)))
    var rule = CaptureRule(name, source, match: match.map { Matcher([.prefix($0)]) })
    rule.isKept = isKept
    return rule
  }

  private func content(_ frame: ProtocolFrame?) -> String? { frame.map { $0.payload.bytes.text() } }

  private func receive(
    _ text: String, _ spoken: inout PlainProtocol, _ memory: inout ProtocolMemory
  ) -> ProtocolEvent {
    spoken.receive(Array(text.utf8).span, kind: .text, &memory)
  }

  /// The message `text` after these messages of the upstream, or the error.
  private func rendered(_ text: String, after messages: String...) throws -> String? {
    var (conventions, memory) = (UpstreamConventions(), memory)
    conventions.captures = try [rule("x", "/x"), rule("y", "/y")]
    conventions.onClose = [try Template(text, in: .closing, environment: [:])]
    var spoken = PlainProtocol(conventions)
    for message in messages { _ = receive(message, &spoken, &memory) }
    do throws(TemplateError) {
      return content(try spoken.lastMessages(memory, now: 0).first)
    } catch {
      return "\(error)"
    }
  }

  @Test func insertsTheLastValue() throws {
    #expect(
      try rendered(#"{"id":${capture:x}}"#, after: #"{"x":12}"#, #"{"x":9007199254740993}"#)
        == #"{"id":9007199254740993}"#)
    #expect(
      try rendered(#"{"id":"${capture:x}"}"#, after: #"{"x":"aé"}"#, #"{"z":1}"#, #"{"x":null}"#) == #"{"id":"aé"}"#)
    #expect(try rendered("${capture:x}-${capture:y}", after: #"{"x":true,"y":"b"}"#) == "true-b")
    #expect(try rendered("${base64:${capture:x}}", after: #"{"x":"\n"}"#) == "Cg==")
  }

  /// A step that needs a value fails, and does not send an empty text.
  @Test func reportsAMissingValue() throws {
    #expect(
      try rendered("${capture:x}", after: #"{"y":1}"#)
        == "no message has had a value for '${capture:x}' ('upstream.capture.x')")
    var conventions = UpstreamConventions()
    conventions.onOpen = [.init(), .init()]
    conventions.onOpen[0].expect = Matcher([.prefix("{")])
    conventions.onOpen[1].send = try Template("${capture:x}", in: .opening, environment: [:])
    conventions.captures = [try rule("x", "/x")]
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    try spoken.prepareSetup(from: 0, memory, now: 0)
    _ = spoken.beginSetup(step: 0)
    #expect(receive("{}", &spoken, &memory) == .setupResponse)
    #expect(throws: SetupError(step: 1, reason: .noCapture("x"))) {
      try spoken.prepareSetup(from: 1, memory, now: 0)
    }
    // The response to one step has the value for the next.
    _ = receive(#"{"x":"s"}"#, &spoken, &memory)
    try spoken.prepareSetup(from: 1, memory, now: 0)
    #expect(content(spoken.beginSetup(step: 1).first) == "s")
  }

  /// The upstream chooses a value, so no value may change the message around it.
  @Test func valuesCannotChangeTheStructureOfAMessage() throws {
    let hostile = #"{"x":"\",\"admin\":true,\"y\":\"\u0000\r\n"}"#
    #expect(
      try rendered(#"{"id":"${capture:x}"}"#, after: hostile)
        == #"{"id":"\",\"admin\":true,\"y\":\"\u0000\r\n"}"#)
    #expect(
      try rendered(#"{"id":${capture:x}}"#, after: hostile) == #"{"id":"\",\"admin\":true,\"y\":\"\u0000\r\n"}"#)
    #expect(try rendered(#"{"id":"${json:${capture:x}}"}"#, after: #"{"x":"a\"b"}"#) == #"{"id":"a\"b"}"#)
    #expect(
      try rendered("<a id='${capture:x}'/>", after: #"{"x":"'/><b a=\"&\">"}"#)
        == "<a id='&apos;/&gt;&lt;b a=&quot;&amp;&quot;&gt;'/>")
    // A line break would begin the next line of a protocol of lines.
    let unsafe =
      "the value of '${capture:x}' has characters that would change the message: control characters, or quotation marks or brackets outside of a string"
    for value in [#"a\r\nPUB x"#, #"\u0000"#, #"\u007f"#] {
      #expect(try rendered("SUB ${capture:x}", after: "{\"x\":\"\(value)\"}") == unsafe)
      #expect(try rendered("<a>${capture:x}", after: "{\"x\":\"\(value)\"}") == unsafe)
    }
    #expect(try rendered(#"SUB ${capture:x} "a""#, after: #"{"x":"a\"b"}"#) == unsafe)
    #expect(throws: TemplateSyntaxError.self) {
      try Template("[${json:${capture:x}}]", in: .opening, environment: [:])
    }
    // Other placeholders may be at the beginning.
    let brackets = #"{"x":"1],[2"}"#
    #expect(try rendered(#"${uuid}["a",${capture:x}]"#, after: brackets) == unsafe)
    #expect(try rendered("${uuid}[${capture:x}]", after: brackets) == unsafe)
    #expect(try rendered("4[${capture:x}]", after: brackets) == #"4["1],[2"]"#)
    #expect(try rendered("${base64:m}<a>${capture:x}</a>", after: #"{"x":"<b>"}"#) == "bQ==<a>&lt;b&gt;</a>")
    // Here the value is in a JSON text within a JSON string. It would be escaped only once, but must be escaped twice.
    for text in [#"{"a":"{\"b\":\"${capture:x}\"}"}"#, #"{"a":"${json:["${capture:x}"]}"}"#] {
      #expect(throws: TemplateSyntaxError.self) { try Template(text, in: .opening, environment: [:]) }
    }
    for context in [Template.Context.field, .value] {
      #expect(throws: TemplateSyntaxError.self) { try Template("${capture:x}", in: context, environment: [:]) }
    }
  }

  @Test(
    arguments: [
      (#"{"x":"\#(String(repeating: "a", count: 1_025))"}"#, CaptureNews.Refusal.tooLong),
      (#"{"x":"\#(String(repeating: "a", count: 1 << 20))"}"#, .tooLong),
      (#"{"x":\#(String(repeating: "1", count: 2_000))}"#, .tooLong),
      (#"{"x":{"a":1}}"#, .noValue), (#"{"x":[1]}"#, .noValue), (#"{"x":nan}"#, .none), (#"{"x":01}"#, .noValue),
    ] as [(String, CaptureNews.Refusal?)])
  func refusesOtherValuesOnce(message: String, refusal: CaptureNews.Refusal?) throws {
    var conventions = UpstreamConventions()
    conventions.captures = [try rule("x", "/x")]
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    #expect(receive(#"{"x":"\#(String(repeating: "é", count: 512))"}"#, &spoken, &memory) == .push)
    #expect(spoken.takeCaptureNews()?.changed["x"]?.content.count == 1_024)
    let before = spoken.captures
    #expect(receive(message, &spoken, &memory) == .push)
    #expect(spoken.takeCaptureNews()?.refused["x"] == refusal && spoken.captures == before)
    #expect(receive(message, &spoken, &memory) == .push)
    #expect(spoken.takeCaptureNews() == nil)
  }

  @Test func refusesInvalidUTF8() throws {
    var (conventions, memory) = (UpstreamConventions(), memory)
    let source = ValueSource([.text(after: TextPattern("M "), isPrefix: true, until: nil)])
    conventions.captures = [CaptureRule("x", source)]
    var spoken = PlainProtocol(conventions)
    let message: [UInt8] = Array("M a".utf8) + [0xFF]
    #expect(spoken.receive(message.span, kind: .binary, &memory) == .push)
    #expect(spoken.takeCaptureNews()?.refused["x"] == .notUTF8 && spoken.captures.isEmpty)
  }

  @Test func capturesFromMatchingMessagesOnly() throws {
    var conventions = UpstreamConventions()
    conventions.captures = [try rule("x", "/x", match: #"{"a""#)]
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    #expect(spoken.capabilities.contains([.captures, .examination]))
    _ = receive(#"{"x":1}"#, &spoken, &memory)
    #expect(spoken.takeCaptureNews() == nil)
    _ = receive(#"{"a":0,"x":1}"#, &spoken, &memory)
    _ = receive(#"{"a":0,"x":"1"}"#, &spoken, &memory)
    #expect(spoken.takeCaptureNews()?.changed == ["x": CapturedValue(Array("1".utf8), isText: true)])
  }

  /// A connection begins with the values that outlive connections, and not with the other values.
  @Test func keepsOnlyTheValuesThatOutliveConnections() throws {
    var conventions = UpstreamConventions()
    conventions.captures = try [rule("x", "/x"), rule("y", "/y", isKept: true)]
    #expect(conventions.keptCaptures == ["y"])
    let value = CapturedValue(Array("k".utf8), isText: true)
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    memory.captures = ["x": value, "y": value, "z": value]
    try spoken.prepareSetup(from: 0, memory, now: 0)
    #expect(spoken.captures == ["y": value])
  }

  /// The upstream repeats a kept value, so it applies to this connection, too.
  @Test func aKeptValueIsNewsOncePerConnection() throws {
    var conventions = UpstreamConventions()
    conventions.captures = [try rule("x", "/x", isKept: true)]
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    memory.captures = ["x": CapturedValue(Array("1".utf8), isText: false)]
    try spoken.prepareSetup(from: 0, memory, now: 0)
    #expect(spoken.takeCaptureNews() == nil)
    for isNews in [true, false] {
      _ = receive(#"{"x":1}"#, &spoken, &memory)
      #expect((spoken.takeCaptureNews() != nil) == isNews)
    }
  }

  @Test func readsTextsAndSeveralPlaces() throws {
    let source = ValueSource([
      .pointer(try #require(JSONPointer("/a"))), .pointer(try #require(JSONPointer("/b"))),
      .text(after: TextPattern("MSG "), isPrefix: true, until: TextPattern(" ")),
      .text(after: TextPattern("\ndestination:"), isPrefix: false, until: TextPattern("\n")),
      .text(after: TextPattern("tick"), isPrefix: true, until: nil),
    ])
    func value(_ text: String) -> FoundValue { source.value(in: Array(text.utf8).span) }
    func text(_ text: String) -> FoundValue { .value(Array(text.utf8), isText: true) }
    #expect(value(#"{"b":"c","a":1}"#) == .value(Array("1".utf8), isText: false))
    #expect(value(#"{"b":"c"}"#) == text("c"))
    #expect(value("MSG a.b 1 5") == text("a.b") && value("MSG a.b") == .none && value(" MSG a b") == .none)
    #expect(value("MESSAGE\nid:1\ndestination:/q\n\nx\ndestination:y\n") == text("/q"))
    #expect(value("MESSAGE\r\ndestination:/q\r\n\r\n") == text("/q"))
    #expect(value("tick") == text("") && value("tic") == .none && value("") == .none)
  }

  @Test func aValueIsNotExpandedAgain() throws {
    for place in [#"{"id":"${capture:x}"}"#, "SUB ${capture:x}", "<a>${capture:x}</a>", "${base64:${capture:x}}"] {
      for value in ["${file:/etc/passwd}", "${env:HOME}", "${credential}", "${capture:y}", "$${", "{variable}"] {
        let message = try rendered(place, after: #"{"y":"other"}"#, #"{"x":"\#(value)"}"#)
        let expected = place.replacing(#"${base64:${capture:x}}"#, with: Base64.encode(Array(value.utf8).span))
          .replacing("${capture:x}", with: value)
        #expect(message == expected || message?.contains("would change the message") == true, "\(value)")
      }
    }
  }

  @Test func aStepMayDependOnAValue() throws {
    var conventions = UpstreamConventions()
    conventions.captures = [try rule("x", "/x", isKept: true)]
    conventions.onOpen = [.init(), .init(), .init()]
    for (index, text) in ["resume ${capture:x}", "login", "end"].enumerated() {
      conventions.onOpen[index].send = try Template(text, in: .opening, environment: [:])
      conventions.onOpen[index].expect = Matcher([.prefix("ok")])
    }
    conventions.onOpen[0].resumed = Matcher([.text("ok resumed")])
    conventions.onOpen[0].condition = .init(capture: "x", isCaptured: true)
    conventions.onOpen[1].condition = .init(capture: "x", isCaptured: false)
    try check(conventions, [:], sent: [nil, "login", "end"])
    let kept = ["x": CapturedValue(Array("s".utf8), isText: true)]
    try check(conventions, kept, sent: ["resume s", nil, "end"])
  }

  @Test func aSkippedStepDoesNotEndTheWaitForALaterStep() throws {
    var conventions = UpstreamConventions()
    conventions.captures = [try rule("x", "/x", isKept: true)]
    conventions.onOpen = [.init(), .init()]
    conventions.onOpen[0].condition = .init(capture: "x", isCaptured: true)
    conventions.onOpen[1].send = try Template("login", in: .opening, environment: [:])
    conventions.onOpen[1].expect = Matcher([.prefix("ok")])
    var spoken = PlainProtocol(conventions)
    try spoken.prepareSetup(from: 0, memory, now: 0)
    #expect(spoken.beginSetup(step: 0).isEmpty && spoken.skips(0))
    #expect(content(spoken.beginSetup(step: 1).first) == "login")
    _ = spoken.skipSetup(step: 0)
    #expect(spoken.awaitedStep == 1)
  }

  /// Expects these setup messages; nil for a step that is skipped.
  private func check(
    _ conventions: UpstreamConventions, _ kept: [String: CapturedValue], sent: [String?]
  ) throws {
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    memory.captures = kept
    for step in sent.indices {
      try spoken.prepareSetup(from: step, memory, now: 0)
      let message = content(spoken.beginSetup(step: step).first)
      #expect(message == sent[step])
      let isSkipped = sent[step] == nil
      #expect(spoken.skips(step) == isSkipped)
      #expect(spoken.awaitedStep == (isSkipped ? nil : step))
      if isSkipped {
        // Without the first step, the service has not resumed.
        var expected = ProtocolEvent.none
        if step == 0 {
          var news = ProtocolNews()
          news.isStateLost = true
          expected = .news(news)
        }
        let event = spoken.skipSetup(step: step)
        #expect(event == expected)
      }
    }
  }

  @Test func aFailureMayForgetTheValues() {
    var conventions = UpstreamConventions()
    conventions.failures = [
      .init(match: Matcher([.text("bye")]), cause: "b"),
      .init(match: Matcher([.text("gone")]), cause: "g", forgetsCaptures: true),
    ]
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    #expect(receive("bye", &spoken, &memory) == .ended("the upstream ended the session: b"))
    #expect(receive("gone", &spoken, &memory) == .ended("the upstream ended the session: g", forgetsCaptures: true))
  }

  /// A connection in setup begins with the kept values. If another connection says that they are of no more use, later
  /// connections get only values that this connection has received.
  @Test func valuesThatAnotherConnectionForgetsDoNotComeBack() throws {
    var conventions = UpstreamConventions()
    conventions.captures = try [rule("x", "/x", isKept: true), rule("y", "/y", isKept: true)]
    conventions.cursor.pointer = JSONPointer("/s")
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    memory.captures = ["x": CapturedValue(Array("1".utf8), isText: true), "y": CapturedValue([], isText: true)]
    try spoken.prepareSetup(from: 0, memory, now: 0)
    _ = receive(#"{"y":"2"}"#, &spoken, &memory)
    spoken.forgetKept(withCursor: false)
    #expect(spoken.capturesToKeep == ["y": CapturedValue(Array("2".utf8), isText: true)])
    #expect(spoken.captures.count == 2, "this connection still uses the values with which it began")
    _ = receive(#"{"s":5}"#, &spoken, &memory)
    #expect(memory.cursor == Array("5".utf8))
    spoken.forgetKept(withCursor: true)
    _ = receive(#"{"s":6}"#, &spoken, &memory)
    #expect(memory.cursor == Array("5".utf8))
  }

  /// The response to a login already counts, so the upstream can resume after it.
  @Test func theResponseToALoginSetsTheFirstCursor() throws {
    var conventions = UpstreamConventions()
    conventions.cursor.pointer = JSONPointer("/s")
    conventions.cursor.match = Matcher([.present(try #require(JSONPointer("/s")))])
    let accepted = Matcher([.present(try #require(JSONPointer("/s")))])
    var (login, resuming) = (UpstreamConventions.OpeningMessage(), UpstreamConventions.OpeningMessage())
    (login.expect, resuming.expect, resuming.resumed) = (accepted, accepted, accepted)
    func cursor(_ step: UpstreamConventions.OpeningMessage, _ before: String?, matches: Bool = true) -> String? {
      var conventions = conventions
      conventions.onOpen = [step]
      if !matches { conventions.cursor.match = nil }
      var (spoken, memory) = (PlainProtocol(conventions), memory)
      memory.cursor = before.map { Array($0.utf8) }
      _ = spoken.beginSetup(step: 0)
      _ = receive(#"{"s":7}"#, &spoken, &memory)
      return memory.cursor.map { String(decoding: $0, as: UTF8.self) }
    }
    #expect(cursor(login, nil) == "7")
    #expect(cursor(login, "3") == "3", "the upstream may still send what follows")
    #expect(cursor(resuming, nil) == nil)
    #expect(cursor(login, nil, matches: false) == nil)
  }

  @Test func aFailureThatForgetsEndsTheCount() throws {
    var conventions = UpstreamConventions()
    conventions.cursor.pointer = JSONPointer("/s")
    conventions.failures = [.init(match: Matcher([.text("gone")]), cause: "g", forgetsCaptures: true)]
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    _ = receive(#"{"s":1}"#, &spoken, &memory)
    _ = receive("gone", &spoken, &memory)
    _ = receive(#"{"s":2}"#, &spoken, &memory)
    #expect(memory.cursor == Array("1".utf8))
  }

  /// A service may repeat a text of the login in the reason of its close frame, after many heartbeats.
  @Test func theTextsOfTheLoginStayHidden() throws {
    var conventions = UpstreamConventions()
    var step = UpstreamConventions.OpeningMessage()
    step.send = try Template("${base64:${sequence}}", in: .opening, environment: [:])
    conventions.onOpen = [step]
    conventions.client.message = try Template("${base64:${sequence}}", in: .heartbeat, environment: [:])
    var (spoken, memory) = (PlainProtocol(conventions), memory)
    try spoken.prepareSetup(from: 0, memory, now: 0)
    for counter in 1...100 as ClosedRange<UInt64> { _ = try spoken.heartbeat(counter, memory, now: 0) }
    let login = Array("MQ==".utf8)
    #expect(spoken.encodedTexts.contains(login) && spoken.encodedTexts.count == 33)
  }

  @Test func writesValuesIntoMessagesThatAreSentAgain() throws {
    var rules = SubscriptionRules()
    rules.replacements = [
      .init(try #require(JSONPointer("/session_id")), with: "x"), .init(try #require(JSONPointer("/a/b")), with: "y"),
    ]
    let number = CapturedValue(Array("7".utf8), isText: false)
    let values = ["x": number, "y": CapturedValue(Array("\"".utf8), isText: true)]
    func replaced(_ text: String, _ kind: MessageKind = .text) throws -> String {
      let sent = try rules.replacing(ByteString(Array(text.utf8)), kind: kind, with: values)
      return sent.bytes.text()
    }
    let message = #"{"session_id": 12345, "a":{"b":null,"c":"$"}}"#
    #expect(try replaced(message) == #"{"session_id": 7, "a":{"b":"\"","c":"$"}}"#)
    for text in [#"{"c":1}"#, "session_id", #"{"session_id":"#, "[]", ""] {
      #expect(try replaced(text) == text)
    }
    #expect(try replaced(message, .binary) == message)
    #expect(throws: TemplateError.noCapture("x")) {
      try rules.replacing(ByteString(Array(message.utf8)), kind: .text, with: [:])
    }
    // A place inside of another place.
    rules.replacements = [
      .init(try #require(JSONPointer("/a")), with: "x"), .init(try #require(JSONPointer("/a/b")), with: "y"),
    ]
    #expect(try replaced(#"{"a":{"b":1},"c":2}"#) == #"{"a":7,"c":2}"#)
  }

  @Test func limitsTheIntervalsOfHeartbeats() throws {
    func span(_ text: String, _ source: String = "x") -> TimeSpan? {
      CapturedInterval(source)?.span(CapturedValue(Array(text.utf8), isText: false))
    }
    #expect(span("41250") == .milliseconds(41_250) && span("41.25", "x:seconds") == .milliseconds(41_250))
    #expect(span("0") == .milliseconds(100) && span("1", "x") == .milliseconds(100))
    #expect(span("1e9") == .minutes(10) && span("1e9", "x:seconds") == .minutes(10) && span("1e308") == .minutes(10))
    #expect(span("1e400") == .minutes(10) && span("0x64") == nil && span("inf") == nil)
    #expect(span("-1") == nil && span("soon") == nil && span("nan") == nil && span("") == nil)
    #expect(CapturedInterval("x:minutes") == nil && CapturedInterval("") == nil && CapturedInterval("a b") == nil)
  }
}
