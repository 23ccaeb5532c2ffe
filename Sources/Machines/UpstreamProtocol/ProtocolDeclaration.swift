import ByteStreams
import Events

/// The settings of an application protocol. They declare its capabilities and the requirements of its opening request,
/// and make the `UpstreamProtocol` of each connection.
///
/// Plain WebSocket messages have no declaration (nil), which costs one branch per message. All members except the first
/// three have a default implementation.
package protocol ProtocolDeclaration: Sendable {
  /// The name of the protocol, in texts for operators.
  var name: String { get }
  var capabilities: ProtocolCapabilities { get }
  /// The protocol of one connection. `messageBytes`: maximum size of a message of the upstream.
  func makeProtocol(_ conventions: UpstreamConventions, messageBytes: Int) -> any UpstreamProtocol

  /// The section of the configuration with these settings, including the prefix `upstream.`.
  var section: String { get }
  /// The setup steps of the protocol, which precede the steps of `upstream.on_open`.
  var steps: [ProtocolStep] { get }
  /// The templates that are rendered for each connection.
  var templates: [Template] { get }
  /// Conflicts between these settings and other settings, if the upstream speaks this protocol. The keys are paths
  /// below `upstream`.
  func problems(with conventions: UpstreamConventions) -> [(key: String, reason: String)]
  /// How clients write events of this protocol; nil without `ProtocolCapabilities.events`.
  var eventFormat: (any EventFormat)? { get }

  // The opening request.

  /// The target of the opening request. `values`: the values of the templates; nil if the request goes to an origin
  /// that is not configured. In this case the secrets are left out.
  func target(_ target: String, _ values: TemplateValues?) throws(TemplateError) -> String
  /// The secrets that the templates send, in the form in which the upstream may repeat them.
  func secrets(_ values: TemplateValues) -> [[UInt8]]
  /// A hint about an HTTP response with a status other than 101, to append to an error message; empty if there is none.
  func hint(status: Int, body: String) -> String
  /// A hint to append to an error message if the connection ends without a response.
  var hintForEnd: String { get }
  /// Whether the first bytes after an upgrade are an HTTP response that refuses it; nil if there are not enough bytes
  /// yet.
  func isRefusal(afterUpgrade bytes: Span<UInt8>) -> Bool?

  /// Whether connections with these settings are the same for the upstream as connections with the other settings.
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

/// A setup step of a protocol, which expects a response.
package struct ProtocolStep: Equatable, Sendable {
  /// The name of the step, in texts for operators.
  package let name: String
  /// The sentence for an error message if the response does not arrive in time.
  package let missing: String
  /// Advice for the operator if the response is missing, appended to `missing`.
  package var hint = ""
  /// Whether the connection is usable without the response.
  package var isOptional = false
  /// The setting of its own timeout; nil if only `upstream.timeouts.on_open` applies.
  package var timeoutKey: String?

  package init(name: String, missing: String) {
    self.name = name
    self.missing = missing
  }

  /// `step` counts the steps of the protocol first, and after them the steps of `upstream.on_open`.
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
