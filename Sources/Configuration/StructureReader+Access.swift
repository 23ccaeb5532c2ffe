import API
import ByteStreams
import Access

/// Reads the rules for client certificates.
extension StructureReader {
  static let certificateMembers: [ValueSchema.Member] = [
    .init("name", .text), .init("scopes", .list(.words(scopeNames))), .init("sessions", .list(.text)),
    .init("topics", .list(.text)),
  ]
  static let scopeNames = ["send", "receive", "call", "admin"]

  /// Maximum number of rules for certificates. Each request with a certificate is compared with all of them.
  private static let certificateLimit = 1_000
  /// Maximum length of a name in bytes. A DNS name has at most 253, and few URIs are longer.
  private static let certificateNameLength = 512

  func certificateRules(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> [AuthenticationSettings.CertificateRule] {
    if case .scalar(let text) = node.value, text.isEmpty { return [] }
    guard case .sequence(let items) = node.value, items.count <= Self.certificateLimit else {
      throw fail(
        node,
        "'\(key)' must be a list of at most \(Self.certificateLimit) rules, as in [{name: \"dns:billing.example.org\", scopes: [send]}]"
      )
    }
    var rules: [AuthenticationSettings.CertificateRule] = []
    for (index, item) in items.enumerated() { rules.append(try certificateRule(item, "\(key)[\(index)]")) }
    return rules
  }

  private func certificateRule(
    _ node: YAMLNode, _ key: String
  ) throws(ConfigurationError) -> AuthenticationSettings.CertificateRule {
    var rule = AuthenticationSettings.CertificateRule(name: "", scopes: [])
    for (name, value) in try members(node, key, Self.certificateMembers.map(\.name)) {
      switch name {
      case "name": rule.name = try certificateName(value, "\(key).name")
      case "scopes":
        rule.scopes = try words(value, "\(key).scopes")
        if let wrong = rule.scopes.first(where: { !Self.scopeNames.contains($0) }) {
          let hint = Suggestion.text(for: wrong, among: Self.scopeNames)
          throw fail(
            value, "'\(wrong)' is not a scope\(hint): use \(Self.scopeNames.joined(separator: ", "))")
        }
      case "sessions": rule.sessions = try patterns(value, "\(key).sessions")
      default: rule.topics = try patterns(value, "\(key).topics")
      }
    }
    guard !rule.name.isEmpty, !rule.scopes.isEmpty else {
      throw fail(node, "'\(key)' needs 'name' and 'scopes', as in {name: \"dns:billing.example.org\", scopes: [send]}")
    }
    return rule
  }

  private func certificateName(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> String {
    let text = try scalar(node, key)
    let name = text.dropFirst(4)
    let isValid: Bool =
      if text.hasPrefix("dns:") {
        // A DNS name may begin with a star in the place of one label, as in certificates.
        !name.dropFirst(name.hasPrefix("*.") ? 2 : 0).contains("*")
      } else {
        // A URI may end with a star, as the patterns of sessions and topics may.
        text.hasPrefix("uri:") && !name.dropLast(name.hasSuffix("*") ? 1 : 0).contains("*")
      }
    guard isValid, !name.isEmpty, text.utf8.count <= Self.certificateNameLength else {
      throw fail(
        node,
        "'\(text)' is not valid for '\(key)': use uri: or dns: and the name, as in uri:spiffe://example.org/billing, uri:spiffe://example.org/* or dns:*.clients.example.org"
      )
    }
    return text
  }

  private func patterns(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [String] {
    let patterns = try words(node, key)
    for pattern in patterns where pattern.dropLast().contains("*") {
      throw fail(
        node, "'\(pattern)' is not valid for '\(key)': use a name, a beginning and '*', or '*' alone for all")
    }
    do throws(NamePatterns.Invalid) {
      _ = try NamePatterns(patterns)
    } catch {
      throw fail(node, "'\(key)' is not valid: \(error)")
    }
    return patterns
  }

  private func words(_ node: YAMLNode, _ key: String) throws(ConfigurationError) -> [String] {
    var result: [String] = []
    for item in try items(node, key, maximum: NamePatterns.maximumCount) { result.append(try scalar(item, key)) }
    return result
  }
}

extension ValueFormat where Value == [AuthenticationSettings.CertificateRule] {
  static var certificateRules: ValueFormat {
    .structure(
      "a list of rules such as {name: \"dns:billing.example.org\", scopes: [send]}",
      schema: .list(.members(StructureReader.certificateMembers, required: ["name", "scopes"])),
      read: StructureReader.certificateRules, format: StructureText.text(of:))
  }
}

extension StructureText {
  static func text(of rules: [AuthenticationSettings.CertificateRule]) -> String {
    let items = rules.map { rule in
      mapping([
        ("name", PrintableText.quoted(rule.name)), ("scopes", list(rule.scopes)), ("sessions", list(rule.sessions)),
        ("topics", list(rule.topics)),
      ])
    }
    return "[\(items.joined(separator: ", "))]"
  }
}
