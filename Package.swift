// swift-tools-version: 6.2
// Imports only go down: a target may name only targets declared above it. docs/architecture.md draws the picture.
import PackageDescription

/// Every Swift target: language mode 6 and no warning tolerated.
let tests: [SwiftSetting] = [
  .swiftLanguageMode(.v6),
  .treatAllWarnings(as: .error),
  // An async function runs where its caller runs: a connection's task never leaves its event loop by accident.
  .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("MemberImportVisibility"),
  // `@_lifetime`: lets our buffers hand out a `Span` that cannot outlive them.
  .enableExperimentalFeature("Lifetimes"),
]

/// Beyond that, outside tests: every unsafe operation is marked where it stands.
let strict: [SwiftSetting] = tests + [.strictMemorySafety()]

/// For the six targets that every request passes: no run-time checks of exclusive access in release builds. They took
/// a fifth of the program's instructions per POST. Debug builds, and so the unit tests and the sanitizers, keep them.
let hottest: [SwiftSetting] =
  strict + [.unsafeFlags(["-enforce-exclusivity=unchecked"], .when(configuration: .release))]

/// The folders below `Sources` and `Tests`, highest first. A target may use those of its own layer that are declared
/// before it.
enum Layer: String {
  case drivers = "Drivers"
  case system = "System"
  case machines = "Machines"
  case codecs = "Codecs"
  case base = "Base"
  case c = "C"
}

func target(
  _ layer: Layer, _ name: String, _ dependencies: [String] = [], settings: [SwiftSetting] = strict
) -> Target {
  .target(
    name: name, dependencies: dependencies.map { .init(stringLiteral: $0) }, path: "Sources/\(layer.rawValue)/\(name)",
    swiftSettings: settings)
}

/// `layer`: nil for a target that belongs to no layer.
func tested(_ layer: Layer?, _ name: String, _ dependencies: [String] = []) -> Target {
  .testTarget(
    name: name + "Tests",
    dependencies: (["TestSupport", name] + dependencies).map { .init(stringLiteral: $0) },
    path: "Tests/\(layer.map { "\($0.rawValue)/" } ?? "")\(name)Tests",
    swiftSettings: tests)
}

/// The built-in profiles.
let profiles = [
  "plain", "json-rpc", "cdp", "home-assistant", "obs", "binance", "huobi", "graphql-transport-ws", "phoenix",
  "socketio", "wamp", "stomp", "nats", "xmpp", "jupyter", "ocpp", "janus", "nostr",
  "slack", "discord", "twitch",
]

let package = Package(
  name: "drawbridge",
  products: [.executable(name: "drawbridge", targets: ["drawbridge"])],
  targets: [
    // C, thin: vector instructions, and what Swift cannot see of the kernel and of four Debian libraries.
    .target(name: "CBytes", path: "Sources/C/CBytes"),
    .target(name: "CLinux", path: "Sources/C/CLinux"),
    .target(
      name: "COpenSSL", path: "Sources/C/COpenSSL", linkerSettings: [.linkedLibrary("ssl"), .linkedLibrary("crypto")]),
    .target(name: "CZlib", path: "Sources/C/CZlib", linkerSettings: [.linkedLibrary("z")]),
    .target(name: "CSQLite", path: "Sources/C/CSQLite", linkerSettings: [.linkedLibrary("sqlite3")]),
    .target(name: "CYAML", path: "Sources/C/CYAML", linkerSettings: [.linkedLibrary("yaml")]),

    // Base: bytes, and what every layer needs of them. Small targets stay where two layers use them.
    target(.base, "Threading", ["CLinux"]),
    target(.base, "ByteStreams", ["CBytes"]),
    target(.base, "Digests", ["COpenSSL", "ByteStreams"]),
    target(.base, "Signatures", ["COpenSSL", "ByteStreams", "Digests"]),

    // Codecs: bytes to values and back. No socket, no clock, no log.
    target(.codecs, "Deflate", ["CZlib", "ByteStreams"]),
    target(.codecs, "JSONCodec", ["ByteStreams"]),
    target(.codecs, "HTTPCodec", ["ByteStreams"], settings: hottest),
    target(.codecs, "WebSocketCodec", ["ByteStreams", "Deflate", "Digests", "HTTPCodec"]),
    target(.codecs, "ProxyCodec", ["ByteStreams", "HTTPCodec"]),
    target(.codecs, "RESPCodec", ["ByteStreams"]),

    // Pure machines: they decide.
    target(.machines, "Totals"),
    target(.machines, "Continuity"),
    target(.machines, "JournalCoding", ["ByteStreams"]),
    target(.machines, "Idempotency", ["ByteStreams", "Totals", "JournalCoding"]),
    target(.machines, "Events", ["ByteStreams"]),
    target(.machines, "SocketIO", ["ByteStreams", "Continuity", "Events", "JSONCodec"]),
    target(.machines, "UpstreamSession", ["ByteStreams"]),
    target(.machines, "Calls", ["ByteStreams", "Totals", "UpstreamSession"]),
    target(
      .machines, "UpstreamProtocol",
      [
        "ByteStreams", "Calls", "Continuity", "Deflate", "Digests", "Events", "JSONCodec", "JournalCoding",
        "Signatures", "SocketIO", "Totals",
      ]),
    target(.machines, "Profiles", ["ByteStreams", "WebSocketCodec"]),
    target(.machines, "Outbox", ["ByteStreams", "Totals", "UpstreamSession", "JournalCoding"]),
    target(.machines, "Inbox", ["ByteStreams", "Events", "JSONCodec", "JournalCoding"]),
    target(.machines, "Consumers", ["ByteStreams", "JSONCodec", "Totals", "Inbox", "JournalCoding"]),
    target(
      .machines, "Journal",
      ["ByteStreams", "Continuity", "Idempotency", "Inbox", "Consumers", "Outbox", "UpstreamProtocol", "JournalCoding"]),
    target(
      .machines, "Webhooks", ["ByteStreams", "Signatures", "HTTPCodec", "Profiles", "Consumers"]),
    target(.machines, "Forwarding", ["ByteStreams"]),
    target(.machines, "RouteNetlink", ["ByteStreams"]),
    target(.machines, "RedisProtocol", ["ByteStreams", "Digests", "HTTPCodec", "RESPCodec", "UpstreamSession"]),
    .target(
      name: "Replication", dependencies: ["ByteStreams", "JSONCodec", "RedisProtocol"],
      path: "Sources/Machines/Replication",
      resources: [
        .embedInCode("Scripts/acquire.lua"), .embedInCode("Scripts/append.lua"), .embedInCode("Scripts/define.lua"),
        .embedInCode("Scripts/heartbeat.lua"), .embedInCode("Scripts/release.lua"), .embedInCode("Scripts/remove.lua"),
        .embedInCode("Scripts/replace.lua"), .embedInCode("Scripts/stage.lua"), .embedInCode("Scripts/stamp.lua"),
      ],
      swiftSettings: strict),
    target(.machines, "Access", ["ByteStreams", "Digests", "Signatures", "JSONCodec"]),

    // System: the kernel, TLS, the file, the eyes of the operator.
    target(.system, "Host", ["Threading", "CLinux", "ByteStreams", "RouteNetlink"]),
    target(.system, "Reactor", ["Threading", "CLinux", "ByteStreams", "Host"], settings: hottest),
    target(.system, "TLSEngine", ["COpenSSL", "ByteStreams", "Digests"]),
    target(.system, "Metrics", ["Threading", "ByteStreams"]),
    target(.system, "Logging", ["Threading", "CLinux", "ByteStreams", "JSONCodec"]),
    target(.system, "Submissions", ["Threading", "ByteStreams", "Journal", "Host", "Reactor"]),
    target(
      .system, "Store",
      [
        "CSQLite", "CLinux", "Threading", "ByteStreams", "JSONCodec", "Inbox", "Consumers", "Outbox",
        "UpstreamProtocol", "Journal",
        "JournalCoding",
        "Events", "Host",
        "Submissions",
        "Metrics", "Logging",
      ]),

    // Drivers: they do.
    target(
      .drivers, "Dialing",
      [
        "Threading", "ByteStreams", "HTTPCodec", "ProxyCodec", "Totals", "Profiles", "RouteNetlink", "Host", "Reactor",
        "TLSEngine", "Metrics", "Logging",
      ], settings: hottest),
    target(
      .drivers, "Upstream",
      [
        "Threading", "ByteStreams", "Deflate", "Digests", "JSONCodec", "HTTPCodec", "WebSocketCodec", "ProxyCodec",
        "TLSEngine", "Continuity", "Idempotency", "Journal", "JournalCoding", "Events", "UpstreamProtocol",
        "Profiles", "UpstreamSession", "Outbox",
        "Calls", "Totals", "RouteNetlink", "Host", "Reactor", "Metrics", "Logging", "Dialing",
      ], settings: hottest),
    target(
      .drivers, "Redis",
      ["ByteStreams", "HTTPCodec", "RESPCodec", "RedisProtocol", "Host", "Reactor", "TLSEngine", "Dialing"]),
    .target(
      name: "RedisStore",
      dependencies: [
        "ByteStreams", "Threading", "RESPCodec", "HTTPCodec", "Inbox", "Journal", "Replication", "RedisProtocol",
        "Host", "Reactor",
        "Submissions", "Metrics", "Logging", "Totals", "TLSEngine", "Dialing", "Redis",
      ],
      path: "Sources/Drivers/RedisStore", resources: [.embedInCode("Scripts/read.lua")], swiftSettings: strict),
    target(
      .drivers, "Sessions",
      [
        "ByteStreams", "Threading", "Continuity", "Idempotency", "UpstreamProtocol", "Journal", "JournalCoding",
        "Totals", "Profiles",
        "Events", "Inbox", "Consumers",
        "Webhooks", "Outbox", "RouteNetlink", "HTTPCodec", "TLSEngine", "UpstreamSession", "Dialing", "Upstream",
        "Host", "Reactor",
        "Metrics",
        "Logging", "WebSocketCodec", "Replication", "RedisStore",
      ]),
    target(
      .drivers, "Peers",
      [
        "ByteStreams", "Threading", "Digests", "HTTPCodec", "Forwarding", "Totals", "Dialing", "Sessions", "Host",
        "Reactor",
        "Metrics", "Logging",
      ]),
    target(
      .drivers, "HTTPServer",
      [
        "Threading", "ByteStreams", "HTTPCodec", "ProxyCodec", "Totals", "Host", "Reactor", "TLSEngine",
        "Metrics", "Logging",
      ],
      settings: hottest),
    .target(
      name: "API",
      dependencies: [
        "Access", "ByteStreams", "Deflate", "Digests", "JSONCodec", "HTTPCodec", "UpstreamSession", "Outbox", "Inbox",
        "Journal", "Consumers", "Webhooks", "Idempotency", "Calls", "Forwarding", "Events", "UpstreamProtocol",
        "Profiles", "Totals", "Upstream",
        "RedisStore", "Sessions", "Peers", "HTTPServer",
        "Host", "Reactor", "TLSEngine", "Metrics", "Logging", "Threading",
      ],
      path: "Sources/Drivers/API",
      resources: [.embedInCode("openapi.yaml"), .embedInCode("errors.md"), .embedInCode("status.html")],
      swiftSettings: hottest),
    target(.drivers, "DemoUpstream", ["ByteStreams", "HTTPCodec", "WebSocketCodec", "SocketIO", "Host", "Reactor"]),

    // Above the parts: it reads their settings.
    .target(
      name: "Configuration",
      dependencies: [
        "CYAML", "ByteStreams", "JSONCodec", "HTTPCodec", "WebSocketCodec", "ProxyCodec", "SocketIO",
        "UpstreamProtocol", "Profiles", "UpstreamSession", "Outbox", "Inbox", "Consumers", "Webhooks", "Journal",
        "RedisProtocol", "Access", "Host", "TLSEngine", "Logging", "Dialing", "Upstream", "RedisStore", "Sessions",
        "HTTPServer", "API",
      ],
      swiftSettings: strict),
    .target(
      name: "Gateway",
      dependencies: [
        "Access", "ByteStreams", "Digests", "Threading", "TLSEngine", "HTTPCodec", "WebSocketCodec", "UpstreamProtocol",
        "UpstreamSession", "Outbox", "Inbox", "Journal", "Webhooks", "Totals", "Dialing", "Upstream", "Redis",
        "RedisProtocol",
        "RedisStore", "Replication", "Sessions", "Peers", "HTTPServer", "Store", "API",
        "Host", "Reactor", "Configuration", "Metrics", "Logging",
      ],
      swiftSettings: strict),
    .executableTarget(
      name: "drawbridge",
      dependencies: [
        "Access", "Digests", "ByteStreams", "Threading", "JSONCodec", "HTTPCodec", "WebSocketCodec", "UpstreamProtocol",
        "TLSEngine", "Upstream", "Sessions", "API", "Gateway", "DemoUpstream", "Configuration", "Logging", "Host",
        "Reactor", "Store",
      ],
      // The files of config/profiles, by symbolic links.
      resources: profiles.map { .embedInCode("Profiles/\($0).yaml") },
      swiftSettings: strict),

    // Tests.
    .target(name: "TestSupport", dependencies: ["ByteStreams"], path: "Tests/TestSupport", swiftSettings: tests),
    // Facts of other threads, and peers on the loopback interface.
    .target(
      name: "LoopbackSupport", dependencies: ["Host", "Reactor"], path: "Tests/LoopbackSupport", swiftSettings: tests),
    tested(.base, "ByteStreams"),
    tested(.base, "Threading"),
    tested(.base, "Digests"),
    tested(.base, "Signatures", ["Digests"]),
    tested(.codecs, "Deflate"),
    tested(.codecs, "JSONCodec"),
    tested(.codecs, "HTTPCodec"),
    tested(.codecs, "WebSocketCodec", ["HTTPCodec"]),
    tested(.codecs, "ProxyCodec", ["ByteStreams", "HTTPCodec"]),
    tested(.codecs, "RESPCodec", ["ByteStreams"]),
    .target(
      name: "JournalSupport",
      dependencies: [
        "ByteStreams", "Continuity", "Idempotency", "Inbox", "Consumers", "Outbox", "UpstreamProtocol", "Journal",
        "JournalCoding",
        "TestSupport",
      ],
      path: "Tests/Machines/JournalSupport", swiftSettings: tests),
    tested(.machines, "Continuity"),
    tested(
      .machines, "Journal",
      ["ByteStreams", "Continuity", "Idempotency", "JournalCoding", "JournalSupport", "Inbox", "Consumers"]),
    tested(.machines, "SocketIO", ["ByteStreams", "Continuity", "Events", "WebSocketCodec"]),
    tested(
      .machines, "UpstreamProtocol",
      ["ByteStreams", "Continuity", "Deflate", "Events", "JSONCodec", "JournalCoding", "SocketIO"]),
    tested(.machines, "Profiles", ["WebSocketCodec"]),
    tested(.machines, "UpstreamSession"),
    tested(.machines, "Outbox", ["Totals", "UpstreamSession", "JournalCoding"]),
    tested(.machines, "Inbox", ["Events", "JournalCoding"]),
    tested(.machines, "Totals"),
    tested(.machines, "Consumers", ["ByteStreams", "Inbox", "JSONCodec", "JournalCoding"]),
    tested(.machines, "Webhooks", ["ByteStreams", "Consumers", "HTTPCodec"]),
    tested(.machines, "Idempotency", ["ByteStreams", "JournalCoding"]),
    tested(.machines, "Forwarding", ["ByteStreams"]),
    tested(.machines, "Calls", ["ByteStreams", "UpstreamSession"]),
    tested(.machines, "RouteNetlink"),
    tested(.machines, "RedisProtocol", ["ByteStreams", "HTTPCodec", "RESPCodec"]),
    tested(.machines, "Replication", ["ByteStreams", "Inbox", "JournalCoding", "RedisProtocol"]),
    tested(.machines, "Access", ["ByteStreams", "Digests", "Signatures", "COpenSSL"]),
    tested(.system, "Host", ["ByteStreams", "Threading"]),
    tested(.system, "Reactor", ["Host", "LoopbackSupport"]),
    // Certificates, made while a test runs.
    .target(
      name: "TLSSupport", dependencies: ["COpenSSL", "TLSEngine"], path: "Tests/System/TLSSupport", swiftSettings: tests
    ),
    tested(.system, "TLSEngine", ["COpenSSL", "Digests", "TLSSupport"]),
    tested(.system, "Metrics"),
    tested(.system, "Logging", ["ByteStreams"]),
    // A file system for SQLite that records, fails and stalls.
    .target(name: "CFaults", dependencies: ["CSQLite"], path: "Tests/System/CFaults"),
    tested(
      .system, "Store",
      [
        "CFaults", "ByteStreams", "Continuity", "Inbox", "Consumers", "Outbox", "UpstreamProtocol", "Journal",
        "JournalCoding",
        "JournalSupport",
        "Logging", "Metrics",
        "Reactor",
        "Events", "Submissions", "Threading", "LoopbackSupport",
      ]),
    tested(
      .drivers, "Dialing",
      [
        "ByteStreams", "HTTPCodec", "LoopbackSupport", "Metrics", "ProxyCodec", "Host", "Reactor", "TLSEngine",
      ]),
    tested(
      .drivers, "Upstream",
      [
        "Dialing", "HTTPCodec", "ProxyCodec", "Host", "Reactor", "WebSocketCodec", "UpstreamSession",
        "Outbox",
        "Logging",
        "Metrics", "ByteStreams", "UpstreamProtocol", "TLSEngine", "Journal", "JSONCodec", "Threading",
        "LoopbackSupport",
      ]),
    // Servers and Sentinels, started by the tests.
    .target(
      name: "RedisSupport", dependencies: ["RedisProtocol", "TestSupport"], path: "Tests/Drivers/RedisSupport",
      swiftSettings: tests),
    tested(
      .drivers, "Redis",
      [
        "ByteStreams", "RESPCodec", "Reactor", "RedisProtocol", "RedisSupport", "TLSEngine", "TLSSupport", "Dialing",
        "LoopbackSupport",
      ]),
    tested(
      .drivers, "RedisStore",
      [
        "ByteStreams", "Host", "Inbox", "Outbox", "Journal", "JournalSupport", "Logging", "Metrics", "RESPCodec",
        "Reactor",
        "Redis",
        "RedisProtocol", "RedisSupport", "Replication", "Submissions", "TLSEngine", "Threading", "Dialing",
        "LoopbackSupport",
      ]),
    tested(
      .drivers, "Sessions",
      [
        "ByteStreams", "CFaults", "Consumers", "DemoUpstream", "Dialing", "HTTPCodec", "Inbox",
        "Journal",
        "Logging", "Metrics", "Outbox", "Profiles", "Host", "Reactor", "Redis", "RedisProtocol", "RedisStore",
        "RedisSupport",
        "Replication", "Store", "TLSEngine", "Threading", "Upstream", "UpstreamSession", "WebSocketCodec", "Webhooks",
        "LoopbackSupport",
      ]),
    tested(
      .drivers, "HTTPServer",
      [
        "ByteStreams", "HTTPCodec", "Logging", "LoopbackSupport", "Metrics", "ProxyCodec", "Host",
        "Reactor",
        "Threading", "TLSEngine", "Totals",
      ]),
    tested(
      .drivers, "API",
      [
        "Access", "ByteStreams", "Configuration", "Consumers", "Deflate", "HTTPCodec", "HTTPServer", "Idempotency",
        "Inbox", "Journal",
        "Logging",
        "Metrics",
        "Outbox", "Calls", "JSONCodec", "Host", "Reactor", "RedisStore", "Sessions", "Threading", "Upstream",
        "UpstreamProtocol",
        "UpstreamSession", "TLSEngine", "WebSocketCodec",
      ]),
    tested(
      .drivers, "Peers",
      [
        "API", "Access", "ByteStreams", "Configuration", "Dialing", "HTTPCodec", "HTTPServer", "Idempotency", "Inbox",
        "Outbox", "Journal",
        "Logging", "Metrics", "Host", "Reactor", "RedisStore", "Sessions", "Threading", "Upstream", "UpstreamProtocol",
        "WebSocketCodec",
        "LoopbackSupport",
      ]),
    tested(
      nil, "Configuration",
      [
        "ByteStreams", "JSONCodec", "HTTPCodec", "WebSocketCodec", "ProxyCodec", "Journal", "UpstreamProtocol",
        "UpstreamSession",
        "Profiles", "Outbox", "Inbox", "Consumers", "Webhooks", "Host", "TLSEngine", "Logging", "Upstream",
        "API", "Dialing", "HTTPServer", "RedisStore", "Sessions",
      ]),
    tested(
      nil, "Gateway",
      [
        "API", "Configuration", "Dialing", "HTTPCodec", "HTTPServer", "Inbox", "Journal", "Outbox", "Reactor",
        "Sessions",
        "Upstream", "WebSocketCodec", "Webhooks",
      ]),
    .testTarget(
      name: "CommandLineTests", dependencies: ["drawbridge", "ByteStreams", "TestSupport"],
      path: "Tests/CommandLineTests", swiftSettings: tests),
    // The clock and the random numbers of the simulation, and the simulation itself: the API, sessions and a hostile
    // store.
    .target(name: "CVirtualClock", path: "Tests/Simulation/CVirtualClock"),
    .testTarget(
      name: "SimulationTests",
      dependencies: [
        "API", "Access", "ByteStreams", "CVirtualClock", "Configuration", "Consumers", "Dialing", "HTTPCodec",
        "HTTPServer", "Inbox",
        "Journal",
        "Logging", "Metrics", "Outbox", "Host", "Reactor", "RedisStore", "Replication", "Sessions", "Submissions",
        "TestSupport", "Threading", "Upstream", "UpstreamProtocol", "UpstreamSession", "WebSocketCodec",
      ],
      path: "Tests/Simulation/SimulationTests", swiftSettings: tests),
    // What the Autobahn TestSuite judges: the gateway's session with an echo behind it (scripts/conformance).
    .executableTarget(
      name: "autobahn-client",
      dependencies: [
        "Upstream", "UpstreamSession", "Outbox", "WebSocketCodec", "Host", "Reactor", "Metrics",
        "Logging",
        "ByteStreams",
      ],
      path: "Tests/Conformance/AutobahnClient", swiftSettings: strict),
    // The codecs beside what they are made of (scripts/bench). Its references are C, called as C is.
    .executableTarget(
      name: "codec-benchmark",
      dependencies: ["ByteStreams", "WebSocketCodec", "TLSEngine", "CZlib", "COpenSSL"],
      path: "Benchmarks/codecs", swiftSettings: tests),
    // Ten thousand sessions in one process: their memory is measured in Tests/Integration.
    .executableTarget(
      name: "session-herd",
      dependencies: [
        "Upstream", "UpstreamSession", "WebSocketCodec", "Host", "Reactor", "Metrics", "Logging",
        "ByteStreams",
      ],
      path: "Tests/Capacity/SessionHerd", swiftSettings: strict),
    .testTarget(name: "ArchitectureTests", swiftSettings: tests),
    // What is fuzzed: functions over bytes, which the unit tests run over the committed corpora.
    .target(
      name: "FuzzTargets",
      dependencies: [
        "ByteStreams", "CZlib", "Deflate", "Digests", "Signatures", "JSONCodec", "HTTPCodec", "WebSocketCodec",
        "ProxyCodec", "RESPCodec", "Continuity", "SocketIO", "RouteNetlink", "Replication", "Access", "Inbox",
        "Profiles", "Configuration", "Dialing", "Upstream", "UpstreamProtocol",
      ],
      path: "Tests/Fuzzing/Targets", swiftSettings: tests),
    tested(nil, "FuzzTargets", ["ByteStreams"]),
  ]
)

// libFuzzer stands in the program's place of main and needs instrumented code: scripts/fuzz alone builds this.
if Context.environment["DRAWBRIDGE_FUZZ"] != nil {
  package.targets += [
    .target(name: "CLibFuzzer", path: "Tests/Fuzzing/CLibFuzzer"),
    .executableTarget(
      name: "drawbridge-fuzz", dependencies: ["ByteStreams", "FuzzTargets", "CLibFuzzer"],
      path: "Tests/Fuzzing/Driver", swiftSettings: tests),
  ]
}
