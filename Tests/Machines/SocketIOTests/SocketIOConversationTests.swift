import ByteStreams
import Continuity
import Testing

@testable import SocketIO

/// A conversation for tests, with the events that it reports as text.
struct Talk {
  var conversation: SocketIOConversation
  static let open4 = #"0{"sid":"s","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}"#
  static let open3 = #"0{"sid":"s","upgrades":[],"pingInterval":25000,"pingTimeout":5000}"#

  init(
    _ version: EngineIOVersion, _ namespaces: [String] = ["/"], _ recoveries: [Continuation?] = [],
    limits: SocketIOLimits = SocketIOLimits()
  ) {
    conversation = SocketIOConversation(version, namespaces: namespaces, recoveries: recoveries, limits)
  }

  /// The meaning of a message, in words. For a violation, its text.
  mutating func receive(_ text: String) -> String { receive(Array(text.utf8), .text) }
  mutating func receive(_ bytes: [UInt8]) -> String { receive(bytes, .binary) }

  mutating func receive(_ message: [UInt8], _ kind: MessageKind) -> String {
    do throws(SocketIOViolation) {
      return Self.words(try conversation.receive(message.span, kind), message)
    } catch {
      return "violation: \(error)"
    }
  }

  static func words(_ event: SocketIOEvent, _ message: [UInt8]) -> String {
    switch event {
    case .opened(let handshake): "opened \(String(decoding: handshake.sessionID, as: UTF8.self))"
    case .ping(let content): "ping \(String(decoding: message[content], as: UTF8.self))"
    case .pong: "pong"
    case .connected(let namespace, let isRecovered): "connected \(namespace)\(isRecovered ? " recovered" : "")"
    case .refused(let namespace, let refusal):
      "refused \(namespace) \(refusal.reason) \(refusal.text)\(refusal.isCut ? "…" : "")"
    case .early(let content): "early \(words(content, message))"
    case .push(let content): "push \(words(content, message))"
    case .acknowledged(let content): "acknowledged \(words(content, message))"
    case .disconnected(let namespace): "disconnected \(namespace)"
    case .closed: "closed"
    case .partial: "partial"
    case .ignored(let reason): "ignored \(reason)"
    }
  }

  private static func words(_ content: SocketIOContent, _ message: [UInt8]) -> String {
    let text = content.text ?? message
    var words = "\(content.namespace) \(String(decoding: text[content.name], as: UTF8.self))"
    words += "(\(String(decoding: text[content.arguments], as: UTF8.self)))"
    if let id = content.id { words += " id \(id)" }
    if !content.attachments.isEmpty { words += " \(content.attachments)" }
    return words
  }

  mutating func connect(_ namespace: Int = 0, _ credentials: String = "") -> String {
    var output = ByteQueue()
    let isValid = conversation.connect(namespace, credentials: Array(credentials.utf8).span, into: &output)
    return isValid ? output.bytes.text() : "invalid"
  }

  mutating func acknowledge(_ id: UInt64, _ arguments: String = "", namespace: Int = 0) -> String? {
    var output = ByteQueue()
    let isOwed = conversation.writeAcknowledgement(
      id, arguments: Array(arguments.utf8).span, namespace: namespace, into: &output)
    return isOwed ? output.bytes.text() : nil
  }

  /// A conversation that is connected to its namespaces.
  static func connected(
    _ version: EngineIOVersion, _ namespaces: [String] = ["/"], limits: SocketIOLimits = SocketIOLimits()
  ) -> Talk {
    var talk = Talk(version, namespaces, limits: limits)
    _ = talk.receive(version == .four ? open4 : open3)
    for (index, name) in namespaces.enumerated() {
      _ = talk.connect(index)
      _ = talk.receive("40\(name == "/" ? "" : name + ",")" + (version == .four ? #"{"sid":"x"}"# : ""))
    }
    return talk
  }
}

@Suite struct SocketIOConversationTests {
  // MARK: Opening

  @Test func versionFourConnectsEachNamespace() {
    var talk = Talk(.four, ["/", "/admin"])
    #expect(talk.receive(Talk.open4) == "opened s")
    #expect(talk.connect(0) == "40")
    #expect(!talk.conversation.isConnected(0))
    #expect(talk.receive(#"40{"sid":"wZX3oN0bSVIhsaknAAAI"}"#) == "connected 0")
    #expect(talk.connect(1, #"{"token":"123"}"#) == #"40/admin,{"token":"123"}"#)
    #expect(talk.receive(#"40/admin,{"sid":"iLnRaVGHY4B75TeVAAAB"}"#) == "connected 1")
    #expect(talk.conversation.isConnected(0) && talk.conversation.isConnected(1))
  }

  @Test func versionThreeJoinsTheDefaultNamespaceWithoutARequest() {
    var talk = Talk(.three, ["/", "/admin", "/b", "/c"])
    #expect(talk.receive(Talk.open3) == "opened s")
    #expect(talk.receive("40") == "connected 0")
    #expect(talk.connect(0) == "")
    #expect(talk.connect(1, "token=1234&uid=abcd") == "40/admin?token=1234&uid=abcd,")
    #expect(talk.receive("40/admin") == "connected 1")
    #expect(talk.connect(2) == "40/b,")
    #expect(talk.receive("40/b,") == "connected 2")
    #expect(talk.connect(3, "x=1") == "40/c?x=1,")
    #expect(talk.receive("40/c?x=1,") == "connected 3")
  }

  @Test(arguments: ["[]", "1", "{", "\"a\"", "null", "{}x"])
  func credentialsOfVersionFourAreAnObject(text: String) {
    var talk = Talk(.four)
    _ = talk.receive(Talk.open4)
    #expect(talk.connect(0, text) == "invalid")
    #expect(talk.connect(0, " {} ") == "40 {} ")
  }

  @Test(arguments: [
    "1", "2", "3", "4", "40", "42[\"a\"]", "6", "0", "0{}", "0[]", #"0{"sid":"a","pingInterval":0,"pingTimeout":1}"#,
    "x",
  ])
  func nothingIsSentBeforeTheOpenPacket(text: String) {
    var talk = Talk(.four)
    #expect(talk.receive(text).hasPrefix("violation"))
    #expect(talk.receive([4, 1]).hasPrefix("violation"))
    #expect(talk.receive(Talk.open4) == "opened s")
    #expect(talk.receive(Talk.open4) == "violation: \(SocketIOViolation.openedTwice)")
  }

  @Test func aServerOfVersionThreeIsRecognisedByItsConnect() {
    for isAsked in [false, true] {
      var talk = Talk(.four)
      _ = talk.receive(Talk.open3)
      if isAsked { _ = talk.connect() }
      #expect(talk.receive("40") == "refused 0 wrongVersion ")
      #expect(talk.receive("40") == "ignored repeated")
    }
  }

  @Test(
    arguments: [
      (.four, #"44{"message":"Not authorized"}"#, "Not authorized"), (.four, #"44"no""#, "no"), (.four, "44", ""),
      (.four, #"44{"data":1}"#, #"{"data":1}"#), (.three, #"44"Not authorized""#, "Not authorized"),
      (.three, #"44{"message":"a\nb"}"#, "a\nb"),
    ] as [(EngineIOVersion, String, String)])
  func aRefusalHasTheTextOfTheServer(version: EngineIOVersion, packet: String, text: String) {
    var talk = Talk(version)
    _ = talk.receive(version == .four ? Talk.open4 : Talk.open3)
    _ = talk.connect()
    #expect(talk.receive(packet) == "refused 0 byServer \(text)")
    #expect(talk.receive("42[\"a\"]") == "ignored namespace")
  }

  @Test func theTextOfARefusalIsCut() {
    var talk = Talk(.four)
    _ = talk.receive(Talk.open4)
    _ = talk.connect()
    let long = String(repeating: "x", count: 1_000)
    #expect(talk.receive(#"44{"message":"\#(long)"}"#) == "refused 0 byServer \(long.prefix(256))…")
  }

  /// A packet that has no meaning after the setup must not make a working connection ignore further packets.
  @Test func aConnectOfAnotherVersionIsIgnoredAfterTheSetup() {
    var talk = Talk(.four, ["/admin", "/late"])
    _ = talk.receive(Talk.open4)
    for namespace in 0..<2 { _ = talk.connect(namespace) }
    _ = talk.receive(#"40/admin,{"sid":"x"}"#)
    #expect(talk.receive("40") == "ignored namespace")
    #expect(talk.receive("42/admin,[\"a\"]") == "push 0 \"a\"()")
    #expect(talk.receive("40/late,") == "ignored namespace")
    #expect(talk.receive(#"40/late,{"sid":"x"}"#) == "connected 1")
  }

  @Test func versionThreeJoinsNoOtherNamespaceWithoutARequest() {
    var talk = Talk(.three, ["/", "/admin"])
    _ = talk.receive(Talk.open3)
    #expect(talk.receive("40/admin,") == "ignored namespace")
    #expect(talk.receive("40") == "connected 0")
    #expect(talk.connect(1) == "40/admin,")
    #expect(talk.receive("40/admin,") == "connected 1")
  }

  // MARK: Each state of a namespace and each packet

  /// The reaction of a namespace in each state to each packet.
  @Test(
    arguments: [
      (
        .four, "idle",
        [
          "refused 0 wrongVersion ", "ignored namespace", "ignored namespace", "ignored namespace",
          "ignored acknowledgement", "refused 0 byServer no",
        ]
      ),
      (
        .four, "connecting",
        [
          "refused 0 wrongVersion ", "connected 0", "disconnected 0", "early 0 \"a\"()", "ignored acknowledgement",
          "refused 0 byServer no",
        ]
      ),
      (
        .four, "connected",
        [
          "ignored repeated", "ignored repeated", "disconnected 0", "push 0 \"a\"()", "ignored acknowledgement",
          "refused 0 byServer no",
        ]
      ),
      (
        .four, "ended",
        [
          "ignored repeated", "ignored repeated", "ignored namespace", "ignored namespace", "ignored acknowledgement",
          "ignored repeated",
        ]
      ),
      (
        .three, "idle",
        [
          "connected 0", "connected 0", "ignored namespace", "ignored namespace", "ignored acknowledgement",
          "refused 0 byServer no",
        ]
      ),
      (
        .three, "connecting",
        [
          "connected 0", "connected 0", "disconnected 0", "early 0 \"a\"()", "ignored acknowledgement",
          "refused 0 byServer no",
        ]
      ),
      (
        .three, "connected",
        [
          "ignored repeated", "ignored repeated", "disconnected 0", "push 0 \"a\"()", "ignored acknowledgement",
          "ignored repeated",
        ]
      ),
      (
        .three, "ended",
        [
          "ignored repeated", "ignored repeated", "ignored namespace", "ignored namespace", "ignored acknowledgement",
          "ignored repeated",
        ]
      ),
    ] as [(EngineIOVersion, String, [String])])
  func theStateOfItsNamespaceDecidesWhatAPacketMeans(version: EngineIOVersion, state: String, expected: [String]) {
    let packets = ["40", #"40{"sid":"x"}"#, "41", "42[\"a\"]", "431[]", #"44"no""#]
    for (packet, meaning) in zip(packets, expected) {
      var talk = Talk(version)
      _ = talk.receive(version == .four ? Talk.open4 : Talk.open3)
      if state != "idle" { _ = talk.connect() }
      if state == "connected" || state == "ended" { _ = talk.receive(#"40{"sid":"x"}"#) }
      if state == "ended" { _ = talk.receive("41") }
      #expect(talk.receive(packet) == meaning, "\(packet)")
    }
  }

  @Test func packetsOfOtherNamespacesAreIgnoredWithTheirAttachments() {
    var talk = Talk.connected(.four, ["/", "/admin"])
    #expect(talk.receive("42/other,[\"a\"]") == "ignored namespace")
    #expect(talk.receive("40/other,{\"sid\":\"x\"}") == "ignored namespace")
    #expect(talk.receive("451-/other,[\"a\"]") == "partial")
    #expect(talk.receive([1]) == "ignored namespace")
    #expect(talk.receive("42/adminx,[\"a\"]") == "ignored namespace")
    #expect(talk.receive("42/admin,[\"a\",2]") == "push 1 \"a\"(2)")
  }

  // MARK: Heartbeats and the end

  @Test func pingsAreReportedWithTheirContent() {
    for version in EngineIOVersion.allCases {
      var talk = Talk.connected(version)
      #expect(talk.receive("2") == "ping " && talk.receive("2probe") == "ping probe")
      #expect(talk.receive("3") == (version == .three ? "pong" : "ignored engine"))
      #expect(talk.receive("2" + String(repeating: "x", count: 125)).hasPrefix("ping"))
      #expect(talk.receive("2" + String(repeating: "x", count: 126)) == "violation: \(SocketIOViolation.longPing)")
      #expect(talk.receive("5") == "ignored engine" && talk.receive("6") == "ignored engine")
      #expect(talk.receive("1") == "closed")
    }
    var output = ByteQueue()
    Talk(.four).conversation.writePong(Array("probe".utf8).span, into: &output)
    #expect(output.bytes.text() == "3probe")
  }

  // MARK: Attachments

  @Test func attachmentsAreGatheredBetweenPackets() {
    for version in EngineIOVersion.allCases {
      let prefix = EngineIOPacket.binaryPrefix(version)
      var talk = Talk.connected(version, ["/", "/admin"])
      let placeholders = #"{"_placeholder":true,"num":0},[{"x":{"num":1,"_placeholder":true}}]"#
      #expect(talk.receive("452-/admin,9[\"baz\",\(placeholders)]") == "partial")
      #expect(talk.conversation.gatheredBytes > 0)
      #expect(talk.receive("2") == "ping ")
      #expect(talk.receive(prefix + [1, 2]) == "partial")
      #expect(talk.receive("6") == "ignored engine")
      #expect(
        talk.receive(version == .three ? "b4AwQ=" : "bAwQ=") == "push 1 \"baz\"(\(placeholders)) id 9 [[1, 2], [3, 4]]")
      #expect(talk.conversation.gatheredBytes == 0)
      #expect(talk.receive("42[\"next\"]") == "push 0 \"next\"()")
    }
  }

  @Test func aBinaryPacketWithoutAttachmentsIsComplete() {
    var talk = Talk.connected(.four)
    #expect(talk.receive("450-[\"a\",1]") == "push 0 \"a\"(1)")
    #expect(talk.receive("42[\"b\"]") == "push 0 \"b\"()")
    #expect(talk.receive([1]) == "violation: \(SocketIOViolation.unannouncedAttachment)")
  }

  @Test(arguments: ["42[\"a\"]", "451-[\"a\"]", "41", "4", "40"])
  func aPacketAmongAttachmentsIsAViolation(text: String) {
    var talk = Talk.connected(.four)
    _ = talk.receive("452-[\"a\"]")
    _ = talk.receive([1])
    #expect(talk.receive(text) == "violation: \(SocketIOViolation.textAmongAttachments)")
  }

  @Test func attachmentsShareTheLimitOfAMessage() {
    var limits = SocketIOLimits()
    limits.messageBytes = 30
    var talk = Talk.connected(.four, limits: limits)
    let text = "452-[\"a\"]"
    #expect(talk.receive(text) == "partial")
    #expect(talk.receive([UInt8](repeating: 0, count: 20)) == "partial")
    #expect(talk.conversation.gatheredBytes == text.utf8.count + 20)
    #expect(talk.receive([0, 0]) == "violation: \(SocketIOViolation.tooLarge(limit: 30))")
    var long = Talk.connected(.four, limits: limits)
    #expect(long.receive("451-[\"\(String(repeating: "x", count: 30))\"]").hasPrefix("violation"))
  }

  // MARK: Acknowledgements

  @Test func anAcknowledgementIsForTheEventOfItsNamespaceAndOnce() {
    var talk = Talk.connected(.four, ["/", "/admin"])
    var output = ByteQueue()
    talk.conversation.writeEventHead(
      name: Array("tellme".utf8).span, hasArguments: false, attachments: 0, namespace: 1, id: 1, into: &output)
    talk.conversation.expectAcknowledgement(1, namespace: 1)
    #expect(output.bytes.text() == #"42/admin,1["tellme""#)
    #expect(talk.receive("431[]") == "ignored acknowledgement")
    #expect(talk.receive("43/admin,2[]") == "ignored acknowledgement")
    #expect(talk.receive(#"461-/admin,1[{"_placeholder":true,"num":0},7]"#) == "partial")
    #expect(talk.receive([9]) == #"acknowledged 1 ({"_placeholder":true,"num":0},7) id 1 [[9]]"#)
    #expect(talk.receive("43/admin,1[]") == "ignored acknowledgement")
  }

  @Test func theEndOfANamespaceReturnsItsOwedAcknowledgements() {
    var talk = Talk.connected(.four, ["/", "/admin"])
    for id in [5, 3] as [UInt64] { talk.conversation.expectAcknowledgement(id, namespace: 1) }
    talk.conversation.expectAcknowledgement(4, namespace: 0)
    #expect(talk.receive("41/admin,") == "disconnected 1")
    #expect(talk.conversation.takeExpected(namespace: 1) == [3, 5])
    #expect(talk.conversation.takeExpected(namespace: 1).isEmpty)
    #expect(talk.receive("434[1]") == "acknowledged 0 (1) id 4")
  }

  @Test func theServerGetsEachAcknowledgementOnce() {
    var talk = Talk.connected(.four, ["/", "/admin"])
    #expect(talk.receive("42/admin,12[\"foo\"]") == "push 1 \"foo\"() id 12")
    #expect(talk.acknowledge(12) == nil && talk.acknowledge(13, namespace: 1) == nil)
    #expect(talk.acknowledge(12, "\"bar\",1", namespace: 1) == #"43/admin,12["bar",1]"#)
    #expect(talk.acknowledge(12, namespace: 1) == nil)
    _ = talk.receive("42/admin,14[\"foo\"]")
    _ = talk.receive("41/admin,")
    #expect(talk.acknowledge(14, namespace: 1) == nil)
  }

  @Test func theOldestOwedAcknowledgementIsForgottenAboveTheLimit() {
    var limits = SocketIOLimits()
    limits.owedAcknowledgements = 3
    var talk = Talk.connected(.four, limits: limits)
    for id in 0..<2 { _ = talk.receive("42\(id)[\"a\"]") }
    #expect(talk.acknowledge(0) == "430[]")
    for id in 2..<5 { _ = talk.receive("42\(id)[\"a\"]") }
    #expect(talk.acknowledge(1) == nil)
    for id in 2..<5 { #expect(talk.acknowledge(UInt64(id)) == "43\(id)[]") }
  }

  // MARK: Recovery

  @Test func theStateOfAConnectionIsRecovered() {
    var talk = Talk(.four)
    _ = talk.receive(Talk.open4)
    #expect(talk.connect(0, "{}") == "40{}")
    #expect(talk.receive(#"40{"sid":"a","pid":"p1"}"#) == "connected 0")
    #expect(talk.conversation.recovery(0) == Continuation(pid: Array("p1".utf8)))
    _ = talk.receive(#"42["a","o1"]"#)
    #expect(talk.conversation.recovery(0)?.offset == Array("o1".utf8))
    // These events have no offset. The last argument is a number, there is no second argument, the event has an id, or
    // the string is longer than an identifier.
    let long = String(repeating: "x", count: 1_100)
    for text in [#"42["a","o2",3]"#, #"42["o3"]"#, #"427["a","o4"]"#, #"42["a","\#(long)"]"#] { _ = talk.receive(text) }
    #expect(talk.conversation.recovery(0)?.offset == Array("o1".utf8))

    var next = Talk(.four, ["/"], [talk.conversation.recovery(0)])
    _ = next.receive(Talk.open4)
    #expect(next.connect(0, #" { "t" : 1 } "#) == #"40{"pid":"p1","offset":"o1","t" : 1 }"#)
    #expect(next.receive(#"40{"sid":"b","pid":"p1"}"#) == "connected 0 recovered")
    #expect(next.conversation.recovery(0)?.offset == Array("o1".utf8))
  }

  @Test(
    arguments: [
      (#"40{"sid":"b","pid":"p2"}"#, Continuation(pid: Array("p2".utf8))), (#"40{"sid":"b"}"#, nil),
      (#"40{"sid":"b","pid":1}"#, nil),
    ] as [(String, Continuation?)])
  func anotherStateIsNotARecovery(packet: String, recovery: Continuation?) {
    var talk = Talk(.four, ["/"], [Continuation(pid: Array("p1".utf8), offset: Array("o".utf8))])
    _ = talk.receive(Talk.open4)
    #expect(talk.connect() == #"40{"pid":"p1","offset":"o"}"#)
    #expect(talk.receive(packet) == "connected 0")
    #expect(talk.conversation.recovery(0) == recovery)
  }

  /// Without an event, the client has no offset, and the server could not find the state.
  @Test func withoutAnOffsetNoRecoveryIsRequested() {
    var talk = Talk(.four, ["/"], [Continuation(pid: Array("p1".utf8))])
    _ = talk.receive(Talk.open4)
    #expect(talk.connect(0, #"{"t":1}"#) == #"40{"t":1}"#)
    #expect(talk.receive(#"40{"sid":"b","pid":"p1"}"#) == "connected 0")
  }

  @Test func offsetsAreKeptOnlyIfTheServerRecovers() {
    var talk = Talk.connected(.four)
    _ = talk.receive(#"42["a","o1"]"#)
    #expect(talk.conversation.recovery(0) == nil)
  }

  @Test func halfASurrogatePairIsReported() throws {
    var talk = Talk.connected(.four)
    for (text, isHalf) in [(#"42["a","\ud800"]"#, true), (#"42["a","\ud83d\ude00"]"#, false)] {
      guard case .push(let content) = try talk.conversation.receive(Array(text.utf8).span, .text) else {
        Issue.record("no push")
        return
      }
      #expect(content.hasUnpairedSurrogates == isHalf)
    }
  }
}
