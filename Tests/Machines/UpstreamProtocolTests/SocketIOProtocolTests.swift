import ByteStreams
import Continuity
import Events
import JSONCodec
import SocketIO
import Testing

@testable import UpstreamProtocol

/// A Socket.IO connection that records what it sends and reports as text.
struct Talk {
  var spoken: SocketIOProtocol
  var memory = ProtocolMemory(SubscriptionRules(), salt: 35)
  private var news: ProtocolNews?
  static let open = #"0{"sid":"s","upgrades":[],"pingInterval":1000,"pingTimeout":2000,"maxPayload":50}"#

  init(
    _ change: (inout SocketIOSettings) -> Void = { _ in }, _ conventions: UpstreamConventions = UpstreamConventions()
  ) {
    var conventions = conventions
    conventions.kind = .socketIO
    change(&conventions.socketIO)
    spoken = SocketIOProtocol(conventions, messageBytes: 1_000)
    spoken.begin(connection: 7, TemplateValues())
  }

  mutating func begin(_ step: Int) -> [String] {
    spoken.beginSetup(step: step).map { String(decoding: [UInt8](copying: $0.payload.bytes), as: UTF8.self) }
  }

  mutating func receive(_ text: String) -> ProtocolEvent {
    meaning(of: spoken.receive(Array(text.utf8).span, kind: .text, &memory))
  }

  mutating func receive(_ bytes: [UInt8]) -> ProtocolEvent {
    meaning(of: spoken.receive(bytes.span, kind: .binary, &memory))
  }

  /// If the event is news, keeps the news and returns the next event.
  private mutating func meaning(of event: ProtocolEvent) -> ProtocolEvent {
    guard case .news(let new) = event else { return event }
    var all = news ?? ProtocolNews()
    all.heartbeats = new.heartbeats ?? all.heartbeats
    all.maximumPayload = new.maximumPayload ?? all.maximumPayload
    all.namespaces = new.namespaces ?? all.namespaces
    all.isStateLost = new.isStateLost || all.isStateLost
    all.acknowledgement = new.acknowledgement ?? all.acknowledgement
    news = all
    return spoken.next(&memory) ?? .none
  }

  mutating func next() -> ProtocolEvent? { spoken.next(&memory).map { meaning(of: $0) } }

  mutating func skip(step: Int) { _ = meaning(of: spoken.skipSetup(step: step)) }

  mutating func takeNews() -> ProtocolNews? {
    defer { news = nil }
    return news
  }

  /// Opens the connection and joins its namespaces.
  mutating func join() throws {
    try spoken.prepareSetup(from: 0, memory, now: 0)
    _ = begin(0)
    #expect(receive(Self.open) == .setupResponse)
    for (index, namespace) in spoken.joined.enumerated() {
      _ = begin(index + 1)
      let name = namespace.name == "/" ? "" : namespace.name + ","
      #expect(receive("40\(name){\"sid\":\"x\"}") == .setupResponse)
    }
    _ = takeNews()
  }

  /// Returns the pushes that waited for the end of the setup.
  mutating func held() -> [String] {
    var words: [String] = []
    while let event = next() { words.append(Talk.words(event)) }
    return words
  }

  /// Opens the connection and connects to the default namespace.
  mutating func connect() throws {
    try spoken.prepareSetup(from: 0, memory, now: 0)
    #expect(receive(Self.open) == .setupResponse)
    _ = begin(1)
    _ = takeNews()
  }

  /// The push as text.
  static func words(_ event: ProtocolEvent) -> String {
    guard case .event(let push) = event else { return "\(event)" }
    let record = EventRecord(push.record.bytes)
    var words = "\(record.namespace.text()) \(record.name.text())(\(record.arguments.text()))"
    if record.attachmentCount > 0 { words += " \(record.attachmentCount) attachments" }
    if !record.token.isEmpty { words += " \(record.token.text())" }
    if let acknowledgement = push.acknowledgement { words += " -> \(acknowledgement.bytes.text())" }
    return words
  }

  mutating func encode(_ parts: EventParts) -> (EncodingResult, [String]) {
    var frames: [String] = []
    let record = parts.record
    let result = spoken.encode(record.span, kind: .text, isCall: false) { parts, kind in
      var payload = ByteQueue()
      parts.append(to: &payload)
      frames.append(kind.isText ? payload.bytes.text() : "\([UInt8](copying: payload.bytes))")
    }
    return (result, frames)
  }
}

extension SocketIOProtocol {
  /// Ends the connection, and keeps the state for the next connection. Returns whether no push is missing if the server
  /// restores the state.
  func saveState(in memory: inout ProtocolMemory) -> Bool {
    memory.recoveries = continuations.filter { $0.value.offset != nil }
    return continuations.values.areComplete
  }
}

private func text(_ bytes: ByteString?) -> String? {
  bytes.map { String(decoding: [UInt8](copying: $0.bytes), as: UTF8.self) }
}

@Suite struct SocketIOProtocolTests {
  private static func namespace(_ name: String, required: Bool = true, auth: String? = nil) throws
    -> SocketIOSettings.Namespace
  {
    var namespace = SocketIOSettings.Namespace(name: name)
    namespace.isRequired = required
    namespace.auth = try auth.map { try Template($0, in: .opening, environment: [:]) }
    return namespace
  }

  @Test func namespacesAreJoinedInTurnAndTheDefaultNamespaceFirst() throws {
    let admin = try Self.namespace("/admin", auth: #"{"token":"${json:${credential}}"}"#)
    var talk = Talk { $0.namespaces = [admin, SocketIOSettings.Namespace(name: "/")] }
    var values = TemplateValues()
    values.credential = Array("a\"b".utf8)
    talk.spoken.begin(connection: 7, values)
    try talk.spoken.prepareSetup(from: 0, talk.memory, now: 0)
    #expect(talk.begin(0) == [] && talk.spoken.awaitedStep == 0)
    #expect(talk.receive(Talk.open) == .setupResponse)
    let news = talk.takeNews()
    #expect(news?.heartbeats == ProtocolNews.Heartbeats(within: .seconds(3)) && news?.maximumPayload == 50)
    #expect(talk.begin(1) == ["40"] && talk.spoken.awaitedStep == 1)
    // A response that no step waits for completes no step.
    #expect(talk.receive(#"40/admin,{"sid":"x"}"#) == .ignored)
    #expect(talk.receive(#"40{"sid":"x"}"#) == .setupResponse)
    #expect(talk.begin(2) == [#"40/admin,{"token":"a\"b"}"#])
    #expect(talk.receive(#"40/admin,{"sid":"x"}"#) == .setupResponse)
    #expect(talk.spoken.awaitedStep == nil)
    #expect(talk.takeNews()?.namespaces?.map(\.state) == [.connected, .connected])
  }

  @Test func credentialsThatAreNoObjectFailTheSetup() throws {
    let namespace = try Self.namespace("/", auth: "token")
    var talk = Talk { $0.namespaces = [namespace] }
    #expect(throws: SetupError(step: 1, reason: .notObject)) {
      try talk.spoken.prepareSetup(from: 0, talk.memory, now: 0)
    }
  }

  @Test func eventsHaveTheirNamespaceAndAcknowledgement() throws {
    var talk = Talk()
    try talk.join()
    #expect(Talk.words(talk.receive(#"42["chat","hi",{"n":1}]"#)) == #"/ chat("hi",{"n":1})"#)
    #expect(Talk.words(talk.receive(#"4212["q"]"#)) == "/ q() -> 4312[]")
    #expect(talk.receive(#"451-["bin",{"_placeholder":true,"num":0}]"#) == .none)
    #expect(Talk.words(talk.receive([1, 2])) == #"/ bin({"_placeholder":true,"num":0}) 1 attachments"#)
    #expect(Talk.words(talk.receive("42[7,1]")) == "/ 7(1)")
    // Half of a surrogate pair cannot be shown in JSON.
    #expect(Talk.words(talk.receive(#"42["\ud800"]"#)) == #"/ (42["\ud800"])"#)
    #expect(talk.receive("42/other,[\"x\"]") == .ignored)
    #expect(talk.receive("x") == .violation(SocketIOViolation.unknownEnginePacket.description))
  }

  @Test(arguments: [SocketIOSettings.Acknowledgements.client, .off])
  func theGatewayAcknowledgesOnlyIfConfigured(setting: SocketIOSettings.Acknowledgements) throws {
    var talk = Talk { $0.acknowledgements = setting }
    try talk.join()
    #expect(Talk.words(talk.receive(#"4212["q"]"#)) == (setting == .client ? "/ q() a-z.7.0.12" : "/ q()"))
  }

  @Test func eventsBeforeTheConnectResponseAreDeliveredAfterIt() throws {
    var talk = Talk()
    try talk.spoken.prepareSetup(from: 0, talk.memory, now: 0)
    _ = talk.receive(Talk.open)
    #expect(talk.receive(#"42["a"]"#) == .ignored)
    _ = talk.begin(1)
    #expect(talk.receive(#"421["b"]"#) == .none && talk.receive(#"42["c"]"#) == .none)
    _ = talk.takeNews()
    #expect(talk.receive(#"40{"sid":"x"}"#) == .setupResponse)
    #expect(talk.takeNews()?.isStateLost == true && talk.takeNews() == nil)
    #expect(talk.held() == ["/ b() -> 431[]", "/ c()"] && talk.held() == [])
  }

  @Test func eventsBeforeTheConnectResponseHaveALimit() throws {
    var talk = Talk()
    try talk.spoken.prepareSetup(from: 0, talk.memory, now: 0)
    _ = talk.receive(Talk.open)
    _ = talk.begin(1)
    var last = ProtocolEvent.none
    for _ in 0..<100 where last == .none { last = talk.receive(#"42["0123456789"]"#) }
    guard case .violation = last else { return #expect(Bool(false), "\(last)") }
  }

  @Test func refusalsDependOnWhetherTheNamespaceIsRequired() throws {
    for isRequired in [true, false] {
      let namespace = try Self.namespace("/", required: isRequired)
      var talk = Talk { $0.namespaces = [namespace] }
      try talk.spoken.prepareSetup(from: 0, talk.memory, now: 0)
      _ = talk.receive(Talk.open)
      _ = talk.begin(1)
      let event = talk.receive(#"44{"message":"no"}"#)
      if isRequired {
        let sentence = "the server refused the namespace '/': "
        #expect(
          event == .denied(ProtocolRefusal(isWrongVersion: false, sentence: sentence, text: "no", isCut: false)))
      } else {
        #expect(event == .setupResponse)
      }
      #expect(
        talk.takeNews()?.namespaces == [
          NamespaceStatus(name: "/", isRequired: isRequired, state: .refused, reason: "no")
        ])
    }
  }

  @Test func aServerOfTheOtherVersionIsRecognised() throws {
    var talk = Talk()
    try talk.spoken.prepareSetup(from: 0, talk.memory, now: 0)
    _ = talk.receive(Talk.open)
    guard case .denied(let refusal) = talk.receive("40") else { return #expect(Bool(false)) }
    #expect(refusal.isWrongVersion && refusal.sentence.hasSuffix("set 'upstream.socketio.version' to 3"))
  }

  @Test func theEndOfARequiredNamespaceEndsTheConnection() throws {
    let optional = try Self.namespace("/b", required: false)
    var talk = Talk { $0.namespaces = [SocketIOSettings.Namespace(name: "/"), optional] }
    try talk.join()
    var event = EventParts()
    event.name = Array("x".utf8)
    event.id = 4
    event.namespace = Array("/b".utf8)
    #expect(talk.encode(event).1 == [#"42/b,4["x"]"#])
    #expect(talk.receive("41/b,") == .callsEnded([4]))
    #expect(talk.encode(event).0 == .notConnected)
    #expect(talk.receive("41") == .ended("the server disconnected the namespace '/'"))
    #expect(talk.receive("1") == .ended("the server closed the Engine.IO connection"))
  }

  @Test func outgoingEventsAreOneOrMoreFrames() throws {
    for version in EngineIOVersion.allCases {
      var talk = Talk { $0.version = version }
      try talk.join()
      var event = EventParts()
      event.name = Array("x".utf8)
      event.arguments = Array(#"1,{"_placeholder":true,"num":0}"#.utf8)
      event.attachments = [[9]]
      let frame = version == .three ? "[4, 9]" : "[9]"
      #expect(talk.encode(event).1 == [#"451-["x",1,{"_placeholder":true,"num":0}]"#, frame])
      event.attachments = [[UInt8](repeating: 0, count: 50)]
      #expect(talk.encode(event).0 == (version == .three ? .tooLarge : .written))
      event.attachments = []
      event.arguments = [UInt8](repeating: UInt8(ascii: "1"), count: 50)
      #expect(talk.encode(event).0 == .tooLarge)
      #expect(talk.spoken.encode(Array("hello".utf8).span, kind: .text, isCall: false) { _, _ in } == .notConnected)
    }
  }

  @Test func anEventThatIsTooLargeExpectsNoAcknowledgement() throws {
    let optional = try Self.namespace("/b", required: false)
    var talk = Talk { $0.namespaces = [SocketIOSettings.Namespace(name: "/"), optional] }
    try talk.join()
    var event = EventParts()
    (event.name, event.namespace, event.id) = (Array("x".utf8), Array("/b".utf8), 4)
    event.arguments = [UInt8](repeating: UInt8(ascii: "1"), count: 50)
    #expect(talk.encode(event).0 == .tooLarge)
    #expect(talk.receive("43/b,4[]") == .ignored)
    event.arguments = []
    event.attachments = [[UInt8](repeating: 0, count: 51)]
    #expect(talk.encode(event).0 == .tooLarge)
    #expect(talk.receive("41/b,") == .callsEnded([]))
  }

  @Test func acknowledgementsBelongToTheirConnection() throws {
    var talk = Talk()
    try talk.join()
    var reply = EventParts()
    reply.kind = .acknowledgement
    reply.id = 12
    reply.arguments = Array("1".utf8)
    reply.connection = 6
    #expect(talk.encode(reply).0 == .notConnected)
    reply.connection = 7
    #expect(talk.encode(reply).1 == ["4312[1]"])
    // The outbox may return the message to the queue. Its bytes are then written again.
    #expect(talk.encode(reply).1 == ["4312[1]"])
  }

  @Test func callsGetADocument() throws {
    var talk = Talk()
    try talk.join()
    var event = EventParts()
    event.name = Array("x".utf8)
    event.id = 5
    _ = talk.encode(event)
    #expect(talk.receive(#"461-5[1,{"_placeholder":true,"num":0}]"#) == .none)
    guard case .acknowledged(let reply) = talk.receive([1, 2, 3]) else { return #expect(Bool(false)) }
    #expect(reply.id == 5 && reply.isEmbeddable)
    #expect(
      text(reply.document) == #"{"args":[1,{"_placeholder":true,"num":0}],"attachments":["AQID"]}"# + "\n")
    #expect(talk.receive("435[]") == .ignored)
  }

  @Test func pingsOfVersionThreeGetTheirPongsInOrder() throws {
    var talk = Talk { $0.version = .three }
    try talk.join()
    for counter in [1, nil, 3] as [UInt64?] {
      let ping = talk.spoken.ping(counter)
      #expect(ping != nil)
    }
    #expect(talk.receive("3") == .pong(1) && talk.receive("3") == .pong(nil) && talk.receive("3") == .pong(3))
    #expect(talk.receive("3") == .ignored)
    for _ in 0..<1_024 { _ = talk.spoken.ping(nil) }
    let refused = talk.spoken.ping(nil)
    #expect(refused == nil)
    #expect(talk.spoken.capabilities.contains(.messagePings) && !Talk().spoken.capabilities.contains(.messagePings))
  }

  @Test func pingsOfVersionFourGetTheirContentBack() throws {
    var talk = Talk()
    try talk.join()
    #expect(talk.receive("2probe") == .heartbeat)
    #expect(try text(talk.spoken.heartbeatReply(talk.memory, now: 0)) == "3probe")
  }

  @Test func messagesOfTheConfigurationAreEnvelopes() throws {
    var conventions = UpstreamConventions()
    var step = UpstreamConventions.OpeningMessage()
    step.send = try Template(#"{"event":"login","args":[1]}"#, in: .opening, environment: [:])
    step.expect = Matcher([.value(try #require(JSONPointer("/0")), "welcome")])
    conventions.onOpen = [step]
    conventions.client.message = try Template(#"{"event":"beat"}"#, in: .heartbeat, environment: [:])
    var talk = Talk({ _ in }, conventions)
    try talk.join()
    try talk.spoken.prepareSetup(from: 2, talk.memory, now: 0)
    #expect(talk.begin(2) == [#"42["login",1]"#] && talk.spoken.awaitedStep == 2)
    #expect(Talk.words(talk.receive(#"42["other"]"#)) == "/ other()")
    #expect(talk.receive(#"429["welcome"]"#) == .setupResponse)
    #expect(text(talk.takeNews()?.acknowledgement) == "439[]")
    #expect(try text(talk.spoken.heartbeat(1, talk.memory, now: 0)) == #"42["beat"]"#)
    conventions.onOpen[0].send = try Template("hello", in: .opening, environment: [:])
    var wrong = Talk({ _ in }, conventions)
    #expect(throws: SetupError.self) { try wrong.spoken.prepareSetup(from: 2, wrong.memory, now: 0) }
  }

  // MARK: Recovery

  @Test func theStateIsRequestedWithPidAndOffset() throws {
    var talk = Talk()
    try talk.spoken.prepareSetup(from: 0, talk.memory, now: 0)
    _ = talk.receive(Talk.open)
    _ = talk.begin(1)
    _ = talk.receive(#"40{"sid":"x","pid":"p"}"#)
    #expect(!talk.spoken.saveState(in: &talk.memory) && talk.memory.recoveries.isEmpty)
    _ = talk.receive(#"42["a",1,"o1"]"#)
    #expect(talk.spoken.saveState(in: &talk.memory))
    var next = Talk()
    next.memory = talk.memory
    try next.spoken.prepareSetup(from: 0, next.memory, now: 0)
    _ = next.receive(Talk.open)
    #expect(next.begin(1) == [#"40{"pid":"p","offset":"o1"}"#])
    _ = next.takeNews()
    #expect(next.receive(#"40{"sid":"y","pid":"p"}"#) == .setupResponse)
    #expect(next.takeNews()?.isStateLost == false)
    #expect(next.spoken.saveState(in: &next.memory))
  }

  // MARK: The opening request

  @Test func theTargetHasTheParametersOfEngineIO() throws {
    var settings = SocketIOSettings()
    settings.query = [
      .init(name: "user id", value: try Template("a+|<{&=%", in: .field, environment: [:]))
    ]
    let values = TemplateValues()
    #expect(
      try settings.target("/", values)
        == "/socket.io/?user%20id=a%2B%7C%3C%7B%26%3D%25&EIO=4&transport=websocket")
    #expect(try settings.target("/", nil) == "/socket.io/?EIO=4&transport=websocket")
    settings.version = .three
    #expect(
      try settings.target("/chat?x=1&EIO=4&transport=polling", nil) == "/chat?x=1&EIO=3&transport=websocket")
  }

  @Test func secretsAreMaskedInTheFormThatIsSent() throws {
    var settings = SocketIOSettings()
    settings.query = [.init(name: "q", value: try Template("query-secret", in: .field, environment: [:]))]
    settings.namespaces = [
      try Self.namespace("/", auth: #"{"token":"${json:${credential}}","list":["in a list"]}"#)
    ]
    var values = TemplateValues()
    values.credential = Array("a\"b".utf8)
    let secrets = settings.secrets(values).map { String(decoding: $0, as: UTF8.self) }
    #expect(secrets == ["query-secret", "a\"b", "in a list"])
    settings.version = .three
    settings.namespaces = [try Self.namespace("/", auth: "token=abc&n=1")]
    #expect(settings.secrets(values).map { String(decoding: $0, as: UTF8.self) } == ["query-secret", "abc", "1"])
  }
}
