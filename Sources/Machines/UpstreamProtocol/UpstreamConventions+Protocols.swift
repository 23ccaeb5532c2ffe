/// The protocol that the upstream speaks above WebSocket.
package enum UpstreamKind: String, CaseIterable, Sendable {
  case websocket
  case socketIO = "socketio"
}

/// The list of all application protocols. No other code lists them.
extension UpstreamConventions {
  /// The declaration of the upstream's protocol; nil for plain messages.
  package var declaration: (any ProtocolDeclaration)? { declarations.first { $0.kind == kind }?.declaration }

  private var declarations: [(kind: UpstreamKind, declaration: any ProtocolDeclaration)] {
    [(.socketIO, socketIO)]
  }

  /// The templates of all protocols, including protocols that the upstream does not speak.
  var protocolTemplates: [Template] { declarations.flatMap(\.declaration.templates) }

  var protocolProblems: [(key: String, reason: String)] {
    var problems = declaration?.problems(with: self) ?? []
    // Settings of a protocol that the upstream does not speak have no effect.
    for (own, initial) in zip(declarations, UpstreamConventions().declarations)
    where own.kind != kind && !own.declaration.isEqual(to: initial.declaration) {
      let section = own.declaration.section.split(separator: ".").dropFirst().joined(separator: ".")
      problems.append((section, "it requires 'kind: \(own.kind.rawValue)'"))
    }
    return problems
  }

  /// Replaces the variables of a profile in the settings of all protocols.
  package mutating func replaceInProtocols(_ values: [String: String]) throws(TemplateVariableError) {
    try socketIO.replace(values)
  }
}
