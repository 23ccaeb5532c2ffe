import ByteStreams
import SocketIO
import Upstream
import UpstreamProtocol
import WebSocketCodec

/// Upstreams that speak Socket.IO.
extension SettingSection {
  static func socketIO(_ upstream: SettingScope<UpstreamSettings>) -> SettingSection {
    let socketIO = upstream.section("socketio", \.conventions.socketIO)
    return SettingSection(
      settings: [
        upstream(
          "kind", \.conventions.kind, .choice, "protocol of the upstream: websocket, or socketio for Socket.IO",
          flag: "kind", isReloadable: false),
        socketIO(
          "version", \.version, .words([("3", .three), ("4", .four)]),
          "version of Engine.IO: 4 for Socket.IO 3 and 4, 3 for Socket.IO 1 and 2"),
        socketIO("query", \.query, .parameters, "parameters of the opening request's query", isSecret: true),
        socketIO(
          "namespaces", \.namespaces, .namespaces, "namespaces to join, each with its credentials; empty: /",
          isSecret: true),
        socketIO(
          "acks", \.acknowledgements, .choice,
          "acknowledgements that the server requests: stored, client or off"),
        socketIO("attachments", \.attachments, .count(0...255), "maximum number of binary attachments of an event"),
      ],
      rules: [upstream.rule(problems)])
  }

  private static func problems(_ upstream: UpstreamSettings) -> [SettingProblem] {
    addedParameters(upstream.urls, upstream, prefix: "")
  }

  /// The problems of URLs with query parameters that the gateway itself adds.
  static func addedParameters(
    _ urls: [WebSocketURL], _ upstream: UpstreamSettings, prefix: String
  ) -> [SettingProblem] {
    guard upstream.conventions.kind == .socketIO else { return [] }
    return urls.enumerated().compactMap { index, url in
      let parameters = url.target.split(separator: "?", maxSplits: 1).dropFirst().joined().split(separator: "&")
      let name = ["EIO", "transport"].first { name in parameters.contains { $0.hasPrefix(name + "=") } }
      guard let name else { return nil }
      return SettingProblem(
        prefix + (index == 0 ? "url" : "fallback_urls"), index == 0 ? .value : .item(index - 1),
        "leave '\(name)' out of the URL: the gateway adds it, by 'upstream.socketio.version'")
    }
  }
}

extension ValueFormat where Value == [SocketIOSettings.Parameter] {
  static var parameters: ValueFormat {
    ValueFormat(
      expectation: "names and values, as in {userID: \"${env:USER_ID}\"}", schema: .pairs(.text),
      reader: .structure(isText: false) { reader, node, key throws(ConfigurationError) in
        try reader.parameters(node, key)
      },
      format: { parameters in
        StructureText.mapping(parameters.map { (PrintableText.quoted($0.name), StructureText.text(of: $0.value)) })
      })
  }
}

extension ValueFormat where Value == [SocketIOSettings.Namespace] {
  static var namespaces: ValueFormat {
    ValueFormat(
      expectation: "a list such as [{name: /, auth: '{\"token\":\"…\"}'}, {name: /admin, required: false}]",
      schema: .list(.any([.text, .members(StructureReader.namespaceMembers, required: ["name"])])),
      reader: .structure(isText: false) { reader, node, key throws(ConfigurationError) in
        try reader.namespaces(node, key)
      },
      format: { namespaces in
        let items = namespaces.map { namespace in
          var members = [("name", PrintableText.quoted(namespace.name))]
          if let auth = namespace.auth { members.append(("auth", StructureText.text(of: auth))) }
          if !namespace.isRequired { members.append(("required", "false")) }
          return StructureText.mapping(members)
        }
        return "[\(items.joined(separator: ", "))]"
      })
  }
}

extension StructureReader {
  fileprivate static let namespaceMembers: [ValueSchema.Member] = [
    .init("name", .text), .init("auth", .text), .init("required", .boolean),
  ]
  /// Maximum number of namespaces. Each namespace needs a round trip when a connection opens.
  private static var namespaceLimit: Int { 64 }
  private static var parameterLimit: Int { 64 }

  fileprivate func parameters(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> [SocketIOSettings.Parameter] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .mapping(let pairs) = node.value, pairs.count <= Self.parameterLimit else {
      throw fail(
        node, "'\(key)' must have at most \(Self.parameterLimit) names with values, as in {userID: \"${env:USER_ID}\"}")
    }
    var result: [SocketIOSettings.Parameter] = []
    for (nameNode, value) in pairs {
      let name = try scalar(nameNode, key)
      guard !name.isEmpty, name != "EIO", name != "transport", name != "sid" else {
        throw fail(nameNode, "'\(name)' is not possible in '\(key)': Engine.IO itself uses EIO, transport and sid")
      }
      guard !result.contains(where: { $0.name == name }) else { throw fail(nameNode, "'\(key).\(name)' is set twice") }
      let template = try template(value, in: .field, "\(key).\(name)")
      result.append(SocketIOSettings.Parameter(name: name, value: template ?? .empty))
    }
    return result
  }

  fileprivate func namespaces(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> [SocketIOSettings.Namespace] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .sequence(let items) = node.value, items.count <= Self.namespaceLimit else {
      throw fail(
        node, "'\(key)' must be a list of at most \(Self.namespaceLimit) namespaces, as in [{name: /}, {name: /admin}]")
    }
    var result: [SocketIOSettings.Namespace] = []
    for (index, item) in items.enumerated() {
      let key = "\(key)[\(index)]"
      if case .scalar(let name) = item.value {
        result.append(SocketIOSettings.Namespace(name: name))
      } else {
        result.append(try namespace(item, key))
      }
      if let reason = SocketIOSettings.problem(ofNamespace: result[index].name) {
        throw fail(item, "'\(result[index].name)' is not valid for '\(key).name': \(reason)")
      }
    }
    return result
  }

  private func namespace(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> SocketIOSettings.Namespace {
    var namespace = SocketIOSettings.Namespace(name: "")
    for (name, value) in try members(node, key, Self.namespaceMembers.map(\.name)) {
      switch name {
      case "name": namespace.name = try scalar(value, "\(key).name")
      case "auth": namespace.auth = try template(value, in: .opening, "\(key).auth")
      default:
        let text = try scalar(value, "\(key).required")
        guard text == "true" || text == "false" else {
          throw fail(value, "'\(text)' is not valid for '\(key).required': use true or false")
        }
        namespace.isRequired = text == "true"
      }
    }
    return namespace
  }
}
