import ByteStreams
import Events

/// The settings of an application protocol, which declare what it can do, what the opening of its connections needs, and how to make its value
/// for a connection.
///
/// Plain WebSocket messages have no declaration: nil costs one branch per message. Everything but the first three has a default.
package protocol ProtocolDeclaration: Sendable {
  /// Its name, in texts for operators.
  var name: String { get }
  var capabilities: ProtocolCapabilities { get }
  /// The protocol of one connection. `messageBytes`: maximum size of a message of the upstream.
  func makeProtocol(_ conventions: UpstreamConventions, messageBytes: Int) -> any UpstreamProtocol

  /// The section of its settings, with `upstream.` before it.
  var section: String { get }
  /// Its setup steps, which precede those of `upstream.on_open`.
  var steps: [ProtocolStep] { get }
  /// The templates that are rendered for each connection.
  var templates: [Template] { get }
  /// Conflicts between its settings and others, if the upstream speaks it. The keys are paths below `upstream`.
  func problems(with conventions: UpstreamConventions) -> [(key: String, reason: String)]
  /// How clients write its events; nil without `ProtocolCapabilities.events`.
  var eventFormat: (any EventFormat)? { get }

  // The opening request.

  /// The target of the opening request. `values`: of the templates; nil without secrets, for an origin that is not configured.
  func target(_ target: String, _ values: TemplateValues?) throws(TemplateError) -> String
  /// What the templates send, as the upstream may repeat it.
  func secrets(_ values: TemplateValues) -> [[UInt8]]
  /// What an HTTP response other than 101 means; empty if it is not known.
  func hint(status: Int, body: String) -> String
  /// What the end of the connection without a response may mean.
  var hintForEnd: String { get }
  /// Whether the first bytes after an upgrade are an HTTP response that refuses it; nil: too few bytes yet.
  func isRefusal(afterUpgrade bytes: Span<UInt8>) -> Bool?

  /// Whether the upstream cannot tell connections with these settings from those with the others.
  func isEqual(to other: any ProtocolDeclaration) -> Bool
}

extension ProtocolDeclaration {
  package var section: String { "upstream" }
  package var steps: [ProtocolStep] { [] }
  package var templates: [Template] { [] }
  package func problems(with conventions: UpstreamConventions) -> [(key: String, reason: String)] { [] }
  package var eventFormat: (any EventFormat)? { nil }
  package func target(_ target: String, _ values: TemplateValues?) throws(TemplateError) -> String { target }
  package func secrets(_ values: TemplateValues) -> [[UInt8]] { [] }
  package func hint(status: Int, body: String) -> String { "" }
  package var hintForEnd: String { "" }
  package func isRefusal(afterUpgrade bytes: Span<UInt8>) -> Bool? { false }
}

extension ProtocolDeclaration where Self: Equatable {
  package func isEqual(to other: any ProtocolDeclaration) -> Bool { (other as? Self) == self }
}

/// A setup step of a protocol. It expects a response.
package struct ProtocolStep: Equatable, Sendable {
  /// Its name, in texts for operators.
  package let name: String
  /// What has not arrived if its time is up.
  package let missing: String
  /// What an operator can check then.
  package var hint = ""
  /// Whether the connection is of use without its response.
  package var isOptional = false
  /// The setting of its own timeout; nil: only `upstream.timeouts.on_open` applies.
  package var timeoutKey: String?

  package init(name: String, missing: String) {
    self.name = name
    self.missing = missing
  }

  /// Those of the protocol come first, then those of `upstream.on_open`.
  package init(_ step: Int, of declaration: (any ProtocolDeclaration)?) {
    let steps = declaration?.steps ?? []
    if step < steps.count {
      self = steps[step]
    } else {
      self.init(onOpen: step - steps.count)
    }
  }

  init(onOpen step: Int) {
    let key = "upstream.on_open[\(step)]"
    self.init(
      name: "opening message \(step + 1) ('\(key)')", missing: "no message of the upstream matched '\(key).expect'")
    timeoutKey = "\(key).timeout"
  }
}
