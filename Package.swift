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

func target(_ name: String, _ dependencies: [String] = []) -> Target {
  .target(name: name, dependencies: dependencies.map { .init(stringLiteral: $0) }, swiftSettings: strict)
}

func tested(_ name: String, _ dependencies: [String] = [], fixtures: [Resource]? = nil) -> Target {
  .testTarget(
    name: name + "Tests",
    dependencies: (["TestSupport", name] + dependencies).map { .init(stringLiteral: $0) },
    resources: fixtures,
    swiftSettings: tests)
}

let package = Package(
  name: "drawbridge",
  products: [.executable(name: "drawbridge", targets: ["drawbridge"])],
  targets: [
    // C, thin: what Swift cannot see of the kernel and of three Debian libraries.
    .target(name: "CLinux"),
    .target(name: "COpenSSL", linkerSettings: [.linkedLibrary("ssl"), .linkedLibrary("crypto")]),
    .target(name: "CZlib", linkerSettings: [.linkedLibrary("z")]),
    .target(name: "CYAML", linkerSettings: [.linkedLibrary("yaml")]),

    // Bytes, and what is made of them. No socket, no clock, no log.
    target("Threading", ["CLinux"]),
    target("ByteStreams"),
    target("Deflate", ["CZlib", "ByteStreams"]),
    target("Digests", ["COpenSSL", "ByteStreams"]),
    target("JSONCodec", ["ByteStreams"]),
    target("HTTPCodec", ["ByteStreams"]),
    target("WebSocketCodec", ["ByteStreams", "Deflate", "Digests", "HTTPCodec"]),
    target("ProxyCodec", ["ByteStreams", "HTTPCodec"]),
    target("TLSEngine", ["COpenSSL", "ByteStreams", "Digests"]),

    target("Conventions", ["ByteStreams", "Deflate", "Digests", "JSONCodec"]),

    // Pure machines: they decide.
    target("UpstreamSession", ["ByteStreams"]),
    target("Delivery", ["ByteStreams", "JSONCodec"]),
    target("RouteNetlink", ["ByteStreams"]),

    // The kernel, the file, the eyes of the operator.
    target("Reactor", ["Threading", "CLinux", "ByteStreams"]),
    target("Configuration", ["CYAML", "ByteStreams", "JSONCodec", "Conventions"]),
    target("Metrics", ["Threading", "ByteStreams"]),
    target("Logging", ["Threading", "CLinux", "ByteStreams", "JSONCodec"]),

    // Drivers: they do.
    .target(
      name: "Gateway",
      dependencies: [
        "Threading", "ByteStreams", "Deflate", "Digests", "JSONCodec", "HTTPCodec", "WebSocketCodec", "ProxyCodec",
        "TLSEngine", "Conventions", "UpstreamSession", "Delivery", "RouteNetlink", "Reactor", "Configuration",
        "Metrics",
        "Logging",
      ],
      resources: [.embedInCode("openapi.yaml")],
      swiftSettings: strict),
    target("DemoUpstream", ["ByteStreams", "HTTPCodec", "WebSocketCodec", "Reactor"]),
    .executableTarget(
      name: "drawbridge",
      dependencies: ["ByteStreams", "Gateway", "DemoUpstream", "Configuration", "Logging", "Reactor"],
      swiftSettings: strict),

    // Tests.
    .target(name: "TestSupport", dependencies: ["ByteStreams"], path: "Tests/TestSupport", swiftSettings: tests),
    tested("ByteStreams"),
    tested("Deflate"),
    tested("Digests"),
    tested("JSONCodec"),
    tested("HTTPCodec"),
    tested("WebSocketCodec", ["HTTPCodec"]),
    tested("ProxyCodec", ["HTTPCodec"]),
    tested("TLSEngine", ["COpenSSL", "Digests"]),
    tested("Conventions", ["Deflate"]),
    tested("UpstreamSession"),
    tested("Delivery"),
    tested("RouteNetlink"),
    tested("Reactor"),
    tested("Configuration", ["Conventions", "JSONCodec"]),
    tested("Metrics"),
    tested("Logging"),
    tested(
      "Gateway",
      [
        "Configuration", "HTTPCodec", "Reactor", "WebSocketCodec", "UpstreamSession", "Logging", "Metrics",
        "ByteStreams", "Conventions", "TLSEngine",
      ]),
    // What the Autobahn TestSuite judges: the gateway's session with an echo behind it (scripts/conformance).
    .executableTarget(
      name: "autobahn-client",
      dependencies: ["Gateway", "UpstreamSession", "WebSocketCodec", "Reactor", "Metrics", "Logging", "ByteStreams"],
      path: "Tests/Conformance/AutobahnClient", swiftSettings: strict),
    // The codecs beside what they are made of (scripts/bench). Its references are C, called as C is.
    .executableTarget(
      name: "codec-benchmark",
      dependencies: ["ByteStreams", "WebSocketCodec", "TLSEngine", "CZlib", "COpenSSL"],
      path: "Benchmarks/codecs", swiftSettings: tests),
    // Ten thousand sessions in one process: their memory is measured in Tests/Integration.
    .executableTarget(
      name: "session-herd",
      dependencies: ["Gateway", "UpstreamSession", "Reactor", "Metrics", "Logging", "ByteStreams"],
      path: "Tests/Capacity/SessionHerd", swiftSettings: strict),
    .testTarget(name: "ArchitectureTests", swiftSettings: tests),
    // What is fuzzed: functions over bytes, which the unit tests run over the committed corpora.
    .target(
      name: "FuzzTargets",
      dependencies: [
        "ByteStreams", "CZlib", "Deflate", "JSONCodec", "HTTPCodec", "WebSocketCodec", "ProxyCodec", "RouteNetlink",
        "Delivery", "Configuration", "Gateway",
      ],
      path: "Tests/Fuzzing/Targets", swiftSettings: tests),
    tested("FuzzTargets", ["ByteStreams"]),
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
