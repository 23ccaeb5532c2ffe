import ByteStreams
import Continuity
import JSONCodec
import SocketIO
import Testing

@testable import UpstreamProtocol

/// Events that arrive, and messages that cannot be sent, before a Socket.IO connection is ready.
@Suite struct SocketIOSetupTests {
  /// A connection that requests the events after the offset `o1`.
  private static func recovering() throws -> Talk {
    var talk = Talk()
    talk.memory.recoveries["/"] = Continuation(pid: Array("p".utf8), offset: Array("o1".utf8))
    try talk.connect()
    return talk
  }

  private static func namespaces(_ version: EngineIOVersion, _ name: String, auth: String) throws -> [String] {
    var conventions = UpstreamConventions()
    conventions.kind = .socketIO
    conventions.socketIO.version = version
    var namespace = SocketIOSettings.Namespace(name: name)
    namespace.auth = try Template(auth, in: .opening, environment: [:])
    conventions.socketIO.namespaces = [namespace]
    return conventions.protocolProblems.map(\.reason)
  }

  // MARK: Early events

  /// The official server sends the missed events before its response to CONNECT.
  @Test func offsetsOfEarlyEventsCount() throws {
    var talk = try Self.recovering()
    #expect(talk.receive(#"42["a",2,"o2"]"#) == .none && talk.receive(#"42["a",3,"o3"]"#) == .none)
    #expect(talk.receive(#"40{"sid":"y","pid":"p"}"#) == .setupResponse)
    #expect(talk.takeNews()?.isStateLost == false)
    // The offset of an event counts only after the event was passed on.
    #expect(talk.spoken.saveState(in: &talk.memory))
    #expect(talk.memory.recoveries["/"]?.offset == Array("o1".utf8))
    #expect(talk.held() == [#"/ a(2,"o2")"#, #"/ a(3,"o3")"#])
    #expect(talk.spoken.saveState(in: &talk.memory))
    #expect(talk.memory.recoveries["/"]?.offset == Array("o3".utf8))
  }

  @Test func earlyEventsOfANewStateSetItsOffsets() throws {
    var talk = try Self.recovering()
    #expect(talk.receive(#"42["a",2,"o2"]"#) == .none)
    #expect(talk.receive(#"40{"sid":"y","pid":"q"}"#) == .setupResponse)
    #expect(talk.takeNews()?.isStateLost == true)
    _ = talk.held()
    #expect(talk.spoken.saveState(in: &talk.memory))
    #expect(
      talk.memory.recoveries["/"] == Continuation(pid: Array("q".utf8), offset: Array("o2".utf8)))
  }

  @Test func aRecoveryMayHaveMoreEvents() throws {
    var talk = try Self.recovering()
    // These bytes exceed the limit for events of a new connection.
    for _ in 0..<30 { #expect(talk.receive(#"42["0123456789"]"#) == .none) }
    #expect(talk.receive(#"40{"sid":"y","pid":"p"}"#) == .setupResponse)
    #expect(talk.held().count == 30)
  }

  private static func optional(_ name: String) -> SocketIOSettings.Namespace {
    var namespace = SocketIOSettings.Namespace(name: name)
    namespace.isRequired = false
    return namespace
  }

  @Test func eachNamespaceHasALimitOfItsOwn() throws {
    var talk = Talk { $0.namespaces = [Self.optional("/a"), Self.optional("/b")] }
    talk.memory.recoveries["/a"] = Continuation(pid: Array("p".utf8), offset: Array("o1".utf8))
    try talk.connect()
    // These bytes exceed the limit for events of another namespace.
    for _ in 0..<30 { #expect(talk.receive(#"42/a,["0123456789"]"#) == .none) }
    talk.skip(step: 1)
    _ = talk.begin(2)
    #expect(talk.receive(#"42/b,["x"]"#) == .none)
    #expect(talk.receive(#"40/b,{"sid":"y"}"#) == .setupResponse)
    #expect(talk.held() == ["/b x()"])
    for _ in 0..<15 { _ = talk.receive(#"42/a,["0123456789"]"#) }
    #expect(talk.receive(#"40/a,{"sid":"y","pid":"p"}"#) == .none)
    #expect(talk.held().count == 45)
  }

  /// After the setup, the requested state cannot be the cause of a violation.
  @Test func aViolationAfterTheSetupDoesNotEndTheRecovery() throws {
    var talk = Talk { $0.namespaces = [.init(name: "/"), Self.optional("/slow")] }
    try talk.connect()
    #expect(talk.receive(#"40{"sid":"y","pid":"p"}"#) == .setupResponse)
    _ = talk.begin(2)
    talk.skip(step: 2)
    #expect(Talk.words(talk.receive(#"42["a","o1"]"#)) == #"/ a("o1")"#)
    guard case .violation = talk.receive("4x") else { return #expect(Bool(false), "no violation") }
    #expect(talk.spoken.saveState(in: &talk.memory))
    #expect(talk.memory.recoveries["/"]?.offset == Array("o1".utf8))
  }

  @Test func aRecoveryThatBreaksIsNotRepeated() throws {
    var talk = try Self.recovering()
    var last = ProtocolEvent.none
    for _ in 0..<1_000 where last == .none { last = talk.receive(#"42["0123456789"]"#) }
    guard case .violation = last else { return #expect(Bool(false), "\(last)") }
    #expect(talk.memory.recoveries.isEmpty)
    #expect(!talk.spoken.saveState(in: &talk.memory) && talk.memory.recoveries.isEmpty)
  }

  @Test func anEarlyEventCanBeTheResponseToASetupMessage() throws {
    var conventions = UpstreamConventions()
    var step = UpstreamConventions.OpeningMessage()
    step.expect = Matcher([.value(try #require(JSONPointer("/0")), "authenticated")])
    conventions.onOpen = [step]
    var talk = Talk({ _ in }, conventions)
    try talk.connect()
    #expect(talk.receive(#"42["a"]"#) == .none && talk.receive(#"427["authenticated"]"#) == .none)
    #expect(talk.receive(#"40{"sid":"x"}"#) == .setupResponse)
    try talk.spoken.prepareSetup(from: 2, talk.memory, now: 0)
    _ = talk.begin(2)
    _ = talk.takeNews()
    #expect(talk.held() == ["/ a()", "setupResponse"])
    let sent = talk.takeNews()?.acknowledgement.map { [UInt8](copying: $0.bytes) }
    #expect(sent == Array("437[]".utf8))
  }

  // MARK: Storing

  /// With each push, the session stores the state from which a later connection can continue. A namespace without a
  /// push has no such state.
  @Test func eachPushHasTheStateThatContinuesAfterIt() throws {
    var talk = Talk { $0.namespaces = [SocketIOSettings.Namespace(name: "/"), SocketIOSettings.Namespace(name: "/b")] }
    try talk.connect()
    #expect(talk.receive(#"40{"sid":"x","pid":"p"}"#) == .setupResponse)
    _ = talk.begin(2)
    #expect(talk.receive(#"40/b,{"sid":"x"}"#) == .setupResponse)
    #expect(
      talk.spoken.continuations == ["/": Continuation(pid: Array("p".utf8)), "/b": Continuation(pid: [])])
    guard case .event(let first) = talk.receive(#"42["a",1]"#), case .event(let push) = talk.receive(#"42["a","o"]"#),
      case .event(let other) = talk.receive(#"42/b,["a","o"]"#)
    else { return #expect(Bool(false)) }
    let recovery = Continuation(pid: Array("p".utf8), offset: Array("o".utf8))
    #expect(first.recovery == nil && push.recovery == recovery && other.recovery == nil)
    #expect(talk.spoken.continuations == ["/": recovery, "/b": Continuation(pid: [])])
  }

  @Test func aServerWithoutRecoveryLeavesNoState() throws {
    var talk = Talk()
    try talk.connect()
    #expect(talk.receive(#"40{"sid":"x"}"#) == .setupResponse)
    _ = talk.receive(#"42["a","o"]"#)
    #expect(talk.spoken.continuations.isEmpty)
  }

  // MARK: Optional namespaces

  @Test func anOptionalNamespaceMayRespondAfterTheSetup() throws {
    var late = SocketIOSettings.Namespace(name: "/late")
    late.isRequired = false
    let namespaces = [SocketIOSettings.Namespace(name: "/"), late]
    var talk = Talk { $0.namespaces = namespaces }
    try talk.connect()
    #expect(talk.receive(#"40{"sid":"x"}"#) == .setupResponse)
    #expect(talk.begin(2) == ["40/late,"] && talk.spoken.awaitedStep == 2)
    talk.skip(step: 1)
    #expect(talk.spoken.awaitedStep == 2)
    _ = talk.takeNews()
    talk.skip(step: 2)
    let status = talk.takeNews()?.namespaces?[1]
    #expect(talk.spoken.awaitedStep == nil && status?.state == .connecting && status?.reason != nil)
    #expect(talk.receive(#"42/late,["a"]"#) == .none)
    #expect(talk.receive(#"40/late,{"sid":"x"}"#) == .none)
    #expect(talk.takeNews()?.namespaces?[1].state == .connected)
    #expect(talk.held() == ["/late a()"])
  }

  @Test func aConnectionWithoutANamespaceHasNoState() throws {
    var talk = Talk()
    try talk.connect()
    #expect(talk.spoken.statuses.allSatisfy { $0.state == .connecting } && talk.spoken.continuations.isEmpty)
    _ = talk.receive(#"40{"sid":"x","pid":"p"}"#)
    #expect(talk.takeNews()?.namespaces?.map(\.state) == [.connected] && talk.spoken.continuations.count == 1)
  }

  // MARK: Setup messages that cannot be sent

  private static func opening(_ message: String) throws -> UpstreamConventions {
    var conventions = UpstreamConventions()
    var step = UpstreamConventions.OpeningMessage()
    step.send = try Template(message, in: .opening, environment: [:])
    step.expect = Matcher([.value(try #require(JSONPointer("/0")), "welcome")])
    conventions.onOpen = [step]
    return conventions
  }

  @Test func aStepForARefusedNamespaceIsSkipped() throws {
    var admin = SocketIOSettings.Namespace(name: "/admin")
    admin.isRequired = false
    let namespaces = [SocketIOSettings.Namespace(name: "/"), admin]
    var talk = Talk(
      { $0.namespaces = namespaces }, try Self.opening(#"{"event":"login","namespace":"/admin"}"#))
    try talk.connect()
    #expect(talk.receive(#"40{"sid":"x"}"#) == .setupResponse)
    _ = talk.begin(2)
    #expect(talk.receive(#"44/admin,{"message":"no"}"#) == .setupResponse)
    try talk.spoken.prepareSetup(from: 3, talk.memory, now: 0)
    #expect(talk.begin(3) == [] && talk.spoken.awaitedStep == 3)
    #expect(talk.held() == ["setupResponse"])
  }

  @Test func aStepThatIsTooLargeFailsTheSetup() throws {
    let long = String(repeating: "1", count: 50)
    var talk = Talk({ _ in }, try Self.opening(#"{"event":"login","args":[\#(long)]}"#))
    try talk.join()
    try talk.spoken.prepareSetup(from: 2, talk.memory, now: 0)
    #expect(talk.begin(2) == [])
    guard case .denied(let refusal) = talk.next() else { return #expect(Bool(false)) }
    #expect(refusal.sentence.contains("maxPayload"))
  }

  // MARK: Credentials

  @Test func credentialsOfVersionThreeAreEncoded() throws {
    var admin = SocketIOSettings.Namespace(name: "/admin")
    admin.auth = try Template("n=1&token=${credential}", in: .opening, environment: [:])
    let namespaces = [admin]
    var values = TemplateValues()
    values.credential = Array("a,b+/=&".utf8)
    var talk = Talk {
      $0.version = .three
      $0.namespaces = namespaces
    }
    talk.spoken.begin(connection: 7, values)
    try talk.connect()
    #expect(talk.begin(1) == ["40/admin?n=1&token=a%2Cb%2B%2F%3D%26,"])
    admin.auth = try Template("token=a,b", in: .opening, environment: [:])
    let wrong = [admin]
    talk = Talk {
      $0.version = .three
      $0.namespaces = wrong
    }
    #expect(throws: SetupError(step: 1, reason: .notQuery)) { try talk.connect() }
  }

  @Test func credentialsThatAreNeverSentAreAProblem() throws {
    #expect(try Self.namespaces(.three, "/", auth: "token=a").count == 1)
    #expect(try Self.namespaces(.three, "/admin", auth: "token=a").isEmpty)
    #expect(try Self.namespaces(.four, "/", auth: "token").count == 1)
    #expect(try Self.namespaces(.four, "/", auth: #"{"token":"a"}"#).isEmpty)
    #expect(try Self.namespaces(.four, "/", auth: #"{"token":${json:${credential}}}"#).isEmpty)
  }
}
