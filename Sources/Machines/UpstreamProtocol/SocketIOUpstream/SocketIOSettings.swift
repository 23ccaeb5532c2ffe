import ByteStreams
import Events
import SocketIO

/// The settings of a Socket.IO upstream (`upstream.socketio`).
package struct SocketIOSettings: Hashable, ProtocolDeclaration, EventFormat {
  /// A parameter of the query of the opening request.
  package struct Parameter: Hashable, Sendable {
    package var name: String
    package var value: Template

    package init(name: String, value: Template) {
      self.name = name
      self.value = value
    }
  }

  package struct Namespace: Hashable, Sendable {
    package var name: String
    /// The payload of CONNECT: a JSON object, or in version 3 parameters of a query.
    package var auth: Template?
    /// Whether the connection is useless without this namespace.
    package var isRequired = true

    package init(name: String) { self.name = name }
  }

  /// How the acknowledgements that the server requests are sent.
  package enum Acknowledgements: String, CaseIterable, Sendable {
    /// The gateway sends an empty acknowledgement when the push is stored.
    case stored
    /// Clients send the acknowledgements.
    case client
    /// No acknowledgements are sent.
    case off
  }

  package var version = EngineIOVersion.four
  package var query: [Parameter] = []
  /// Empty for the default namespace only.
  package var namespaces: [Namespace] = []
  package var acknowledgements = Acknowledgements.stored
  /// Maximum number of attachments of a packet.
  package var attachments = SocketIOLimits().attachments

  package init() {}

  /// The namespaces to join, the default namespace first: a server of version 3 joins the default namespace without a
  /// request.
  package var joined: [Namespace] {
    guard !namespaces.isEmpty else { return [Namespace(name: "/")] }
    return namespaces.filter { $0.name == "/" } + namespaces.filter { $0.name != "/" }
  }

  package var templates: [Template] { query.map(\.value) + namespaces.compactMap(\.auth) }

  /// Why `name` is not a valid namespace; nil if it is valid.
  package static func problem(ofNamespace name: String) -> String? {
    guard name.hasPrefix("/") else { return "a namespace begins with '/': write '/\(name)'" }
    let isPlain = name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !#",?"\"#.utf8.contains($0) }
    guard isPlain, name.utf8.count <= namespaceBytes else {
      return "a namespace has at most \(namespaceBytes) printable ASCII characters, without spaces and , ? \" \\"
    }
    return nil
  }

  /// Maximum size of a namespace's name, in bytes.
  private static var namespaceBytes: Int { 128 }

  package func target(_ target: String, _ values: TemplateValues?) throws(TemplateError) -> String {
    let parts = target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    let path = parts[0] == "/" ? "/socket.io/" : String(parts[0])
    var parameters = parts.count > 1 ? parts[1].split(separator: "&").map(String.init) : []
    // The URL of a redirection may have these parameters already.
    parameters.removeAll { $0.hasPrefix("EIO=") || $0.hasPrefix("transport=") }
    if let values {
      for parameter in query {
        let value = try parameter.value.rendered(with: values)
        parameters.append(
          "\(PercentEncoder.encode(Array(parameter.name.utf8).span))=\(PercentEncoder.encode(value.span))")
      }
    }
    parameters += ["EIO=\(version.rawValue)", "transport=websocket"]
    return path + "?" + parameters.joined(separator: "&")
  }

  /// The credentials in the CONNECT of a namespace. In version 3, the values of placeholders are percent-encoded: the
  /// server reads a query, and a comma would end the name of the namespace.
  func credentials(of namespace: Namespace, _ values: TemplateValues) throws(TemplateError) -> [UInt8] {
    guard let auth = namespace.auth else { return [] }
    guard version == .three else { return try auth.rendered(with: values) }
    let text = try auth.renderedForQuery(with: values)
    guard text.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: ",") && $0 != UInt8(ascii: "#") }) else {
      throw .notQuery
    }
    return text
  }

  package func secrets(_ values: TemplateValues) -> [[UInt8]] {
    var values = values
    values.cursor = values.cursor ?? []
    var result = query.compactMap { try? $0.value.rendered(with: values) }
    for namespace in namespaces {
      guard let text = try? namespace.auth?.rendered(with: values) else { continue }
      if version == .four {
        result += Self.strings(in: text)
      } else {
        for pair in text.split(separator: UInt8(ascii: "&")) {
          if let value = pair.split(separator: UInt8(ascii: "="), maxSplits: 1).last { result.append(Array(value)) }
        }
        guard let sent = try? credentials(of: namespace, values) else { continue }
        for pair in sent.split(separator: UInt8(ascii: "&")) {
          guard let value = pair.split(separator: UInt8(ascii: "="), maxSplits: 1).last.map(Array.init) else {
            continue
          }
          if !result.contains(value) { result.append(value) }
        }
      }
    }
    return result
  }

  /// The contents of the strings in a JSON text.
  private static func strings(in text: [UInt8]) -> [[UInt8]] { JSONStrings.contents(of: text) }
}
