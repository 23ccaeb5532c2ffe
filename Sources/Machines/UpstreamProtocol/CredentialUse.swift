import ByteStreams

/// The source of the session's credential, and the part of the opening handshake that contains it.
package struct CredentialUse: Hashable, Sendable {
  /// At most one of `environmentVariable`, `file` and `command` is set.
  package var environmentVariable = ""
  package var file = ""
  /// A program and its arguments. It runs without a shell.
  package var command: [String] = []
  /// Timeout of `command`.
  package var timeout = TimeSpan.seconds(10)
  /// A header field of the opening request, such as `Authorization: Bearer ${credential}`.
  package var header: Template?
  /// The name of a query parameter of the upstream's URL; empty if there is none.
  package var query = ""

  package init() {}

  /// Maximum size of a credential, in bytes. A JSON web token with many claims has a few thousand.
  package static let maximumBytes = 64 << 10

  package enum Source: Hashable, Sendable {
    case environment(String)
    case file(String)
    case command([String], within: TimeSpan)
  }

  /// nil if no credential is configured.
  package var source: Source? {
    if !environmentVariable.isEmpty { return .environment(environmentVariable) }
    if !file.isEmpty { return .file(file) }
    return command.isEmpty ? nil : .command(command, within: timeout)
  }

  fileprivate var sources: Int { [!environmentVariable.isEmpty, !file.isEmpty, !command.isEmpty].count { $0 } }
}

extension UpstreamConventions {
  /// Conflicts between settings that are each valid on their own. A reason also names the accepted settings. The keys
  /// are paths below `upstream`.
  package var problems: [(key: String, reason: String)] {
    credentialProblems + correlationProblems + subscriptionProblems + heartbeatProblems + captureProblems
      + protocolProblems
  }

  /// An upstream may number its own messages, too, so a number alone does not recognise a reply.
  private var correlationProblems: [(key: String, reason: String)] {
    guard let correlation, correlation.ids == .sequence, correlation.replies.contains(where: { $0.shape == .any })
    else {
      return []
    }
    return [
      (
        "correlation",
        "with 'ids: sequence', another message of the upstream may have the number of a call: set 'match', which only replies match"
      )
    ]
  }

  private var credentialProblems: [(key: String, reason: String)] {
    var problems: [(String, String)] = []
    if let header = credential.header, header.fieldName == nil {
      problems.append(("credential.header", "use a header field such as 'Authorization: Bearer ${credential}'"))
    }
    if !credential.query.utf8.allSatisfy(ASCII.isUnreserved) {
      problems.append(("credential.query", "a parameter's name must consist of letters, digits and -._~"))
    }
    let isUsedInMessages =
      onOpen.contains { $0.send?.usesCredential == true }
      || (onClose + protocolTemplates).contains(where: \.usesCredential)
    let isUsed = credential.header?.usesCredential == true || !credential.query.isEmpty || isUsedInMessages
    switch (credential.source, isUsed) {
    case (nil, true):
      problems.append(("credential", "it is used, but it has no source: set env, file or command"))
    case (.some, false):
      problems.append(
        (
          "credential",
          "it is not sent anywhere: set header or query, or use ${credential} in a message of on_open or in socketio"
        ))
    case (nil, false), (.some, true): break
    }
    if credential.sources > 1 { problems.append(("credential", "set only one of env, file and command")) }
    return problems
  }

  /// Each `${capture:NAME}` needs a rule.
  private var captureProblems: [(key: String, reason: String)] {
    let names = Set(captures.map(\.name))
    let section = declaration.map { String($0.section.split(separator: ".").dropFirst().joined(separator: ".")) }
    let uses = templates + protocolTemplates.map { (key: section ?? "on_open", template: $0) }
    var problems: [(String, String)] = []
    for use in uses {
      for name in use.template.captures.subtracting(names).sorted() {
        problems.append((use.key, "'${capture:\(name)}' has no rule: set 'upstream.capture.\(name)'"))
      }
    }
    for (index, step) in onOpen.enumerated() {
      guard let condition = step.condition, !names.contains(condition.capture) else { continue }
      problems.append(
        ("on_open", "step \(index + 1) depends on '\(condition.capture)': set 'upstream.capture.\(condition.capture)'"))
    }
    for name in Set(subscriptions.replacements.map(\.capture)).subtracting(names).sorted() {
      problems.append(("subscriptions.replace", "there is no rule for '\(name)': set 'upstream.capture.\(name)'"))
    }
    if let name = client.intervalCapture?.capture, !names.contains(name) {
      problems.append(
        ("heartbeat.client.interval_from", "there is no rule for '\(name)': set 'upstream.capture.\(name)'"))
    }
    return problems
  }

  private var subscriptionProblems: [(key: String, reason: String)] {
    let rules = [("add", subscriptions.add), ("remove", subscriptions.remove), ("ended", subscriptions.ended)]
    let halves = rules.filter { ($0.1.match == nil) != ($0.1.key == nil) }
    guard halves.isEmpty else {
      return halves.map { ("subscriptions.\($0.0)", "match and key must be set together, or neither") }
    }
    if let correlation, correlation.ids == .sequence, subscriptions.add.key == correlation.request {
      return [
        (
          "subscriptions.add.key",
          "with 'upstream.correlation.ids: sequence', the id at '\(correlation.request)' is a different number on each connection: choose another key, or subscribe in upstream.on_open"
        )
      ]
    }
    guard subscriptions.add.match == nil, rules.contains(where: { $0.1.match != nil }) else { return [] }
    return [("subscriptions", "'remove' and 'ended' require 'add'")]
  }

  private var heartbeatProblems: [(key: String, reason: String)] {
    var problems: [(String, String)] = []
    if client.expect != nil, client.message == nil {
      problems.append(
        ("heartbeat.client.expect", "it requires upstream.heartbeat.client.message: otherwise no heartbeat is sent"))
    }
    if client.intervalCapture != nil, client.message == nil {
      problems.append(
        (
          "heartbeat.client.interval_from",
          "it requires upstream.heartbeat.client.message: otherwise no heartbeat is sent"
        ))
    }
    if server.reply != nil, server.match == nil {
      problems.append(
        ("heartbeat.server.reply", "it requires upstream.heartbeat.server.match: otherwise no heartbeat is recognised"))
    }
    return problems
  }
}

extension Template {
  /// The field name, if this template has the form `Name: value`.
  package var fieldName: String? {
    guard case .text(let bytes)? = pieces.first, let colon = bytes.firstIndex(of: UInt8(ascii: ":")), colon > 0,
      bytes[..<colon].allSatisfy(ASCII.isToken)
    else { return nil }
    return String(decoding: bytes[..<colon], as: UTF8.self)
  }
}
