import Foundation
import Testing

/// The imports that docs/architecture.md allows in each layer. The compiler does not stop a pure target from importing
/// Glibc; this test does.
@Suite struct ImportTests {
  private static let pure: [String: Set<String>] = [
    "ByteStreams": ["CBytes"],
    "JSONCodec": ["ByteStreams"],
    "HTTPCodec": ["ByteStreams"],
    "WebSocketCodec": ["ByteStreams", "Deflate", "Digests", "HTTPCodec"],
    "ProxyCodec": ["ByteStreams", "HTTPCodec"],
    "RESPCodec": ["ByteStreams"],
    "Continuity": [],
    "Events": ["ByteStreams"],
    "SocketIO": ["ByteStreams", "Continuity", "Events", "JSONCodec"],
    "UpstreamProtocol": [
      "ByteStreams", "Calls", "Continuity", "Deflate", "Digests", "Events", "JSONCodec", "JournalCoding",
      "Signatures", "SocketIO", "Totals",
    ],
    "Totals": [],
    "JournalCoding": ["ByteStreams"],
    "Journal": [
      "ByteStreams", "Continuity", "Idempotency", "Inbox", "Consumers", "Outbox", "UpstreamProtocol", "JournalCoding",
    ],
    "Profiles": ["ByteStreams", "WebSocketCodec"],
    "UpstreamSession": ["ByteStreams"],
    "Outbox": ["ByteStreams", "Totals", "UpstreamSession", "JournalCoding"],
    "Inbox": ["ByteStreams", "JSONCodec", "Events", "JournalCoding"],
    "Consumers": ["ByteStreams", "JSONCodec", "Totals", "Inbox", "JournalCoding"],
    "Webhooks": ["ByteStreams", "Signatures", "HTTPCodec", "Profiles", "Consumers"],
    "Idempotency": ["ByteStreams", "Totals", "JournalCoding"],
    "Forwarding": ["ByteStreams"],
    "Calls": ["ByteStreams", "Totals", "UpstreamSession"],
    "RouteNetlink": ["ByteStreams"],
    "RedisProtocol": ["ByteStreams", "Digests", "HTTPCodec", "RESPCodec", "UpstreamSession"],
    "Replication": ["ByteStreams", "JSONCodec", "RedisProtocol"],
    // `Synchronization` is allowed only for one atomic flag.
    "Access": ["ByteStreams", "Digests", "Signatures", "JSONCodec", "Synchronization"],
  ]

  private static var root: URL {
    URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
  }

  private static func sources(of target: String = "") throws -> [URL] {
    let folder = root.appendingPathComponent("Sources")
    let files = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)
    return (files?.allObjects as? [URL] ?? []).filter {
      // The program and the API have folders with the names of targets.
      let path = $0.path
      let places = target.contains("/") ? [target] : ["Base/", "Codecs/", "Machines/", ""].map { $0 + target }
      return path.hasSuffix(".swift") && (target.isEmpty || places.contains { path.contains("/Sources/\($0)/") })
    }
  }

  /// The modules that `source` imports.
  private static func imports(in source: String) -> Set<String> {
    var modules: Set<String> = []
    for line in source.split(whereSeparator: \.isNewline) {
      let words = line.split(separator: " ").map(String.init)
      guard let place = words.firstIndex(of: "import"), words[..<place].allSatisfy({ !$0.hasPrefix("//") }) else {
        continue
      }
      let isDeclaration = words[..<place].allSatisfy {
        $0.hasPrefix("@") || ["package", "public", "internal", "private", "fileprivate"].contains($0)
      }
      guard isDeclaration, var module = words.dropFirst(place + 1).first else { continue }
      if ["struct", "class", "enum", "func", "protocol", "typealias", "var", "let"].contains(module) {
        module = words.dropFirst(place + 2).first ?? ""
      }
      modules.insert(String(module.prefix { $0 != "." }))
    }
    return modules
  }

  @Test(arguments: pure.keys.sorted())
  func aPureTargetImportsOnlyTargetsBelowIt(target: String) throws {
    let files = try Self.sources(of: target)
    #expect(!files.isEmpty)
    for file in files {
      let found = Self.imports(in: try String(contentsOf: file, encoding: .utf8))
      let forbidden = found.subtracting(Self.pure[target] ?? [])
      #expect(forbidden.isEmpty, "\(file.lastPathComponent) imports \(forbidden.sorted())")
    }
  }

  /// Routes are tested without a socket, so they must not be able to use a socket. Notifiers are the only part of the
  /// reactor that they use.
  @Test func theAPIUsesNoSocketAndTheServerNoRoute() throws {
    for file in try Self.sources(of: "Drivers/API") {
      let text = try String(contentsOf: file, encoding: .utf8)
      for name in ["Channel", "Sockets", "EventLoop", "LoopContext", "LoopTask", "OutputQueue"] {
        #expect(!text.contains(name), "\(file.lastPathComponent) names \(name)")
      }
    }
    let known = Set(["Sessions", "Upstream", "Inbox", "Outbox", "UpstreamSession", "JSONCodec", "API"])
    for file in try Self.sources(of: "Drivers/HTTPServer") {
      let found = Self.imports(in: try String(contentsOf: file, encoding: .utf8))
      #expect(found.isDisjoint(with: known), "\(file.lastPathComponent)")
    }
  }

  /// `source` without its comments. A line may contain `//` in a string, such as the scheme of a URL.
  private static func code(of source: String) -> String {
    source.split(separator: "\n", omittingEmptySubsequences: false).map { line in
      var (isText, last) = (false, Character(" "))
      for place in line.indices {
        let character = line[place]
        if character == "\"", last != "\\" { isText.toggle() }
        if !isText, character == "/", last == "/" { return String(line[..<line.index(before: place)]) }
        last = last == "\\" ? " " : character
      }
      return String(line)
    }.joined(separator: "\n")
  }

  @Test(
    arguments: [
      ("let a = 1 // isHere", "let a = 1 "), ("/// isHere", ""), ("a / b / isHere", "a / b / isHere"),
      (#"f("https://a", isHere) // b"#, #"f("https://a", isHere) "#), (#""\"//" + isHere"#, #""\"//" + isHere"#),
      (#""\\" // isHere"#, #""\\" "#),
    ])
  func aCommentIsNoCode(source: String, code: String) { #expect(Self.code(of: source) == code) }

  /// Two stages surround each endpoint. The stage of the cluster decides which gateway executes a request, and what
  /// becomes of it if the session is lost. The stage of the store waits until the changes of a request are stored.
  @Test func noEndpointKnowsTheHolderOrWaitsForTheStore() throws {
    let stages: Set = ["Cluster", "Storing", "Routes"]
    let names: Set = [
      "isHere", "hasLeft", "isHolderByClock", "hasShownTruth", "ofRemote", "placement", "forwarder", "forward",
      "RequestToForward", "ForwardedRequest", "ForwardedExchange", "Executor", "misdirect", "isFromPeer", "toPeer",
      "bootTime", "JournalTicket", "JournalOutcome", "StoreRejection", "StoreStatus", "ticket", "tickets", "unstored",
      "beginWaitingForStore", "endWaitingForStore", "endsAtDrain",
    ]
    // The default boundary of words is not between a name and the dot before it.
    let calls = /\b(outcome\((of|in):|isLost\(|upstream\.reject\()/.wordBoundaryKind(.simple)
    // These requests wait for something other than the store of a session.
    let exceptions = [
      "HeldDirectoryRequest.swift": "endsAtDrain", "MakeCall.swift": "endsAtDrain", "ReadSession.swift": "StoreStatus",
      "SessionJSON.swift": "StoreStatus",
    ]
    var folders: Set<String> = []
    for file in try Self.sources(of: "Drivers/API") {
      let folder = file.deletingLastPathComponent().lastPathComponent
      guard folder != "API", !stages.contains(folder) else { continue }
      folders.insert(folder)
      let code = Self.code(of: try String(contentsOf: file, encoding: .utf8))
      var found = names.intersection(code.split { !$0.isLetter && !$0.isNumber && $0 != "_" }.map(String.init))
      if let exception = exceptions[file.lastPathComponent] {
        #expect(found.contains(exception), "\(file.lastPathComponent) needs no exception")
        found.remove(exception)
      }
      #expect(found.isEmpty, "\(folder)/\(file.lastPathComponent) names \(found)")
      #expect(!code.contains(calls), "\(folder)/\(file.lastPathComponent)")
    }
    #expect(folders == ["Calls", "Consumers", "Documents", "Management", "Messages", "Sessions"])
  }

  @Test func connectionsAreOpenedBelowSessions() throws {
    let sessions = Set(["Upstream", "Sessions", "UpstreamSession", "UpstreamProtocol", "WebSocketCodec", "Journal"])
    for file in try Self.sources(of: "Drivers/Dialing") {
      let found = Self.imports(in: try String(contentsOf: file, encoding: .utf8))
      #expect(found.isDisjoint(with: sessions), "\(file.lastPathComponent)")
    }
    for target in ["Redis", "RedisStore", "Peers"] {
      for file in try Self.sources(of: "Drivers/\(target)") {
        let found = Self.imports(in: try String(contentsOf: file, encoding: .utf8))
        #expect(!found.contains("Upstream"), "\(file.lastPathComponent)")
      }
    }
  }

  /// The caller gives each part its settings. So a part can be used without a file, and Configuration can read the
  /// settings of all parts.
  @Test func onlyTheProgramAndItsCompositionUseConfiguration() throws {
    var users: Set<String> = []
    for file in try Self.sources() {
      guard Self.imports(in: try String(contentsOf: file, encoding: .utf8)).contains("Configuration") else { continue }
      let path = file.path.split(separator: "/Sources/").last ?? ""
      users.insert(String(path.prefix { $0 != "/" }))
    }
    #expect(users == ["Gateway", "drawbridge"])
  }

  /// The code that decides about a shared store must also work with another engine than Redis.
  @Test func onlyTheRedisEngineUsesTheProtocolOfRedis() throws {
    let engine = ["RedisLog", "RedisFlight", "RESPPart", "StoreScript", "RedisStoreSettings", "SharedStoreSettings"]
    for file in try Self.sources(of: "Drivers/RedisStore") {
      guard !engine.contains(where: { file.lastPathComponent.hasPrefix($0) }) else { continue }
      let found = Self.imports(in: try String(contentsOf: file, encoding: .utf8))
      #expect(found.isDisjoint(with: ["Redis", "RedisProtocol", "RESPCodec"]), "\(file.lastPathComponent)")
    }
  }

  /// If only one type conforms to a Swift protocol, a reader must look up which code is called. Such a protocol needs a
  /// reason: a lower target calls a higher target, tests or other engines have conforming types, or a generic type is
  /// used without its parameter.
  @Test func aSwiftProtocolHasSeveralConformingTypesOrAReason() throws {
    let reasons: [String: Set<String>] = [
      "a higher target is called": [
        "HTTPApplication", "JournalObserver", "RedisStoreDelegate", "TurnObserver", "UpstreamSink",
      ],
      "an engine or a protocol can be added, and tests have one": [
        "Dialer", "EventFormat", "ProtocolDeclaration", "SessionJournal", "SharedLog", "SharedLogOwner",
      ],
      "a generic type is used without its parameter": ["BlockingJob", "BodyPreparation"],
    ]
    let kinds: Set = ["protocol", "class", "struct", "enum", "actor", "extension"]
    var types: [String: Set<String>] = [:]
    var protocols: Set<String> = []
    for file in try Self.sources() {
      for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
      where line.hasSuffix("{") || line.hasSuffix("}") {
        let words = line.split { !$0.isLetter && $0 != "/" && $0 != "." }.map(String.init)
        guard let place = words.firstIndex(where: kinds.contains), words.count > place + 1,
          words[..<place].allSatisfy({ ["package", "private", "fileprivate", "final"].contains($0) })
        else { continue }
        if words[place] == "protocol" { protocols.insert(words[place + 1]) }
        guard line.contains(":") else { continue }
        for parent in words[(place + 2)...] { types[parent, default: []].insert("\(file.path) \(words[place + 1])") }
      }
    }
    let single = protocols.filter { types[$0, default: []].count < 2 }
    let explained = reasons.values.reduce(Set()) { $0.union($1) }
    #expect(protocols.count > 20)
    #expect(single.subtracting(explained).isEmpty)
    #expect(explained.subtracting(single).isEmpty, "these have several types, or are gone")
  }

  /// The compiler accepts `@inlinable` in a type of the package that is not `@usableFromInline`. Other targets then
  /// call the function instead of inlining it.
  @Test func inlinableFunctionsCanBeInlinedInOtherTargets() throws {
    let modifiers: Set = ["package", "final", "@safe", "@unsafe", "@usableFromInline"]
    let kinds: Set = ["class", "struct", "enum"]
    var usable: [String: Bool] = [:]
    var inlinable: [String: String] = [:]
    for file in try Self.sources() {
      var (before, type) = (false, "")
      for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") {
        let words = line.split { " :<{".contains($0) }.map(String.init)
        if line.hasPrefix("extension ") { type = words[1] }
        let rest = words.drop(while: modifiers.contains)
        if !line.hasPrefix(" "), let kind = rest.first, kinds.contains(kind), rest.count > 1 {
          type = rest[rest.startIndex + 1]
          usable[type] = before || words.contains("@usableFromInline")
        }
        if !line.hasPrefix(" ") { before = words.contains("@usableFromInline") || before && rest.isEmpty }
        if line.contains(" @inlinable") { inlinable[type] = file.lastPathComponent }
      }
    }
    #expect(inlinable.count > 10)
    for (type, file) in inlinable { #expect(usable[type] != false, "\(type) in \(file)") }
  }

  @Test func settingsAndFilesNeedNoEventLoop() throws {
    for target in ["System/Host", "System/Store", "Configuration"] {
      for file in try Self.sources(of: target) {
        let found = Self.imports(in: try String(contentsOf: file, encoding: .utf8))
        #expect(!found.contains("Reactor"), "\(file.lastPathComponent)")
      }
    }
  }

  /// Drivers and machines use a protocol's capabilities (`ProtocolCapabilities`). Only the protocol's own targets, its
  /// settings and the demo may mention it by name.
  @Test func onlyTheTargetsAndSettingsOfAProtocolNameIt() throws {
    let rooms = ["/Machines/SocketIO/", "/SocketIOUpstream/", "/DemoUpstream/", "/Sources/drawbridge/"]
    let others = [
      // The list of protocols, their settings, and a help text about them.
      "UpstreamConventions+Protocols.swift", "UpstreamConventions.swift", "SettingScope.swift",
      "Settings+SocketIO.swift", "CredentialUse.swift",
      // The kinds of upstreams whose messages a store keeps.
      "StoredMemory.swift", "StoreInspection.swift",
    ]
    for file in try Self.sources() where !rooms.contains(where: { file.path.contains($0) }) {
      guard !others.contains(file.lastPathComponent) else { continue }
      let text = try String(contentsOf: file, encoding: .utf8)
      #expect(!text.lowercased().contains("socketio"), "\(file.lastPathComponent)")
    }
  }

  /// `URLParts` is the only parser of URLs. A second parser would accept other URLs, or show other parts of them.
  @Test func onlyURLPartsSplitsAURL() throws {
    let others = [
      // The text may be an invalid URL, and every part that may be a secret must be masked.
      "MaskedURL.swift",
      // The text has placeholders, and becomes a URL only when they have values.
      "URLTemplate.swift",
    ]
    var found: [String] = []
    for file in try Self.sources() {
      let text = try String(contentsOf: file, encoding: .utf8)
      if text.contains(/of: ":\/\/"|Prefix\("\w+:\/\//) { found.append(file.lastPathComponent) }
    }
    #expect(Set(found) == Set(others + ["URLParts.swift"]))
  }

  /// The code of the API reads the rows of the routes. If it named a route or compared a path, a new route could be
  /// missing there. Only the endpoint itself and the list of endpoints name it, and only the router knows that paths of
  /// the API begin with `/v1/`.
  @Test func onlyTheTableNamesARoute() throws {
    let files = try Self.sources(of: "Drivers/API")
    let texts = try files.map { ($0.lastPathComponent, try String(contentsOf: $0, encoding: .utf8)) }
    let declaration = /\n(?:enum|struct) (\w+): (?:Endpoint|ImmediateEndpoint|ConsumerReading|ConsumerChange) \{/
    let endpoints = texts.flatMap { file, text in text.matches(of: declaration).map { (file, String($0.1)) } }
    #expect(endpoints.count > 25)
    for (file, text) in texts where file != "Endpoints.swift" {
      for (place, endpoint) in endpoints where place != file {
        // The parameters of a query are part of the row.
        let names = text.replacing("accepting: \(endpoint).parameters", with: "")
        #expect(!names.contains(try Regex("\\b\(endpoint)\\b").wordBoundaryKind(.simple)), "\(file) names \(endpoint)")
      }
      if file == "Router.swift" { continue }
      #expect(!text.contains(/(equals\(|with: |== )"\/(v1|errors|openapi)/), "\(file) compares a path")
    }
  }

  /// An endpoint that responds at once knows nothing about other gateways or the store of a session: its row says where
  /// it is executed.
  @Test func anImmediateEndpointNeitherForwardsNorWaitsForTheStore() throws {
    var found = 0
    for file in try Self.sources(of: "Drivers/API") {
      let text = try String(contentsOf: file, encoding: .utf8)
      for body in text.split(separator: "\nenum ").dropFirst() {
        guard body.prefix(while: { $0 != "{" }).contains(/: (ImmediateEndpoint|ConsumerReading)\b/) else { continue }
        found += 1
        let code = body[..<(body.firstRange(of: "\n}")?.lowerBound ?? body.endIndex)]
        #expect(!code.contains(/isHere|hasLeft|[tT]icket|forward|placement/), "\(file.lastPathComponent)")
      }
    }
    #expect(found > 12)
  }

  /// A held request describes itself by properties (`effect`, `residue`). Code that tests its type would overlook a new
  /// type.
  @Test func noCodeTestsTheTypeOfAWaitingRequest() throws {
    for target in ["API", "HTTPServer"] {
      for file in try Self.sources(of: "Drivers/\(target)") {
        let text = try String(contentsOf: file, encoding: .utf8)
        #expect(!text.contains(/\ (is|as\?) (any )?(Held\w+|WaitingRequest)\b/), "\(file.lastPathComponent)")
      }
    }
  }

  /// Between `advance` and `finish`, the connection may still respond to TLS messages or flush output, and getters are
  /// read at any time. Only `advance` may lease, withdraw, forward or move a position.
  @Test func aWaitingRequestActsOnlyWhenItAdvances() throws {
    let acts =
      /\b(advance\((\.|cause|at:)|reject\(|take\(\w|lease\(|r\?\.forward\(|followCopy\(|findMessages\(|hasNews\()/
      .wordBoundaryKind(.simple)
    let writes =
      /^( +)(\w+ )*(func (finish|conclude|beginStream)\(at now:|func write\w*\(_ api: API, at now:|var \w+: [^=]*\{)/
    var writers = 0
    for file in try Self.sources(of: "Drivers/API") {
      var end: String?
      for line in try String(contentsOf: file, encoding: .utf8).split(separator: "\n") {
        let start = end == nil ? line.firstMatch(of: writes) : nil
        if let start {
          writers += 1
          if line.hasSuffix("{") { end = start.1 + "}" }
        }
        if start != nil || end != nil { #expect(!line.contains(acts), "\(file.lastPathComponent): \(line)") }
        if let last = end, line == last { end = nil }
      }
    }
    #expect(writers > 50)
  }

  @Test func noShippedTargetImportsFoundation() throws {
    for file in try Self.sources() {
      let found = Self.imports(in: try String(contentsOf: file, encoding: .utf8))
      #expect(found.isDisjoint(with: ["Foundation", "FoundationEssentials", "Dispatch"]), "\(file.lastPathComponent)")
    }
  }

  @Test func onlyReactorHasUncheckedSendableAndNothingIsForceUnwrapped() throws {
    for file in try Self.sources() {
      let text = try String(contentsOf: file, encoding: .utf8)
      let code = text.split(whereSeparator: \.isNewline).filter { !$0.drop { $0 == " " }.hasPrefix("//") }
      if !file.path.contains("/Sources/System/Reactor/") {
        #expect(!code.contains { $0.contains("@unchecked Sendable") }, "\(file.lastPathComponent)")
      }
      #expect(!code.contains { $0.contains("try!") || $0.contains(" as! ") }, "\(file.lastPathComponent)")
    }
  }

  @Test(
    arguments: [
      ("import Glibc", ["Glibc"]), ("@testable import A", ["A"]), ("package import B", ["B"]),
      ("import struct C.D", ["C"]),
      ("// import E", []), ("let important = 1", []), ("  import F", ["F"]),
    ] as [(String, Set<String>)])
  func theImportParserReadsEveryForm(source: String, modules: Set<String>) {
    #expect(Self.imports(in: source) == modules)
  }
}
