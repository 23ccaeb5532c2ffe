import Access
import TLSEngine

/// The grants of client certificates, by the names in them. One per event loop.
struct CertificateGrants {
  /// Maximum number of certificates whose grants are remembered. Grants are remembered because a comparison of a
  /// certificate's names with a thousand rules takes longer than a short request.
  private static var remembered: Int { 1_024 }

  struct Rule: Sendable {
    enum Name: Sendable {
      case dns(String)
      /// `.example.org` matches all names that have exactly one label before it.
      case dnsBelow(String)
      case uri(String)
      case uriPrefix(String)
    }

    let name: Name
    let scopes: Scopes
    let sessions: NamePatterns
    let topics: NamePatterns

    /// Returns the name in the certificate to which the rule applies.
    func match(_ certificate: ClientCertificate) -> String? {
      switch name {
      case .dns(let name): certificate.dnsNames.contains(name) ? "dns:" + name : nil
      case .dnsBelow(let suffix):
        certificate.dnsNames.first { $0.hasSuffix(suffix) && $0.dropLast(suffix.utf8.count).isLabel }.map {
          "dns:" + $0
        }
      case .uri(let name): certificate.uris.contains(name) ? "uri:" + name : nil
      case .uriPrefix(let prefix): certificate.uris.first { $0.hasPrefix(prefix) }.map { "uri:" + $0 }
      }
    }
  }

  private let rules: [Rule]
  /// The entry contains the certificate itself. That keeps the certificate alive, so that no other object gets its
  /// identifier.
  private var grants: [ObjectIdentifier: (certificate: ClientCertificate, grant: Grant?)] = [:]

  init(_ rules: [Rule]) { self.rules = rules }

  /// Returns the grant of the certificate; nil if no rule names it.
  mutating func grant(for certificate: ClientCertificate) -> Grant? {
    let id = ObjectIdentifier(certificate)
    if let known = grants[id] { return known.grant }
    if grants.count >= Self.remembered { grants.removeAll() }
    let grant = makeGrant(certificate)
    grants[id] = (certificate, grant)
    return grant
  }

  private func makeGrant(_ certificate: ClientCertificate) -> Grant? {
    for rule in rules {
      guard let name = rule.match(certificate) else { continue }
      return Grant(
        principal: name, scopes: rule.scopes, sessions: rule.sessions, topics: rule.topics,
        expires: certificate.expiry.multipliedReportingOverflow(by: 1_000).partialValue)
    }
    return nil
  }
}

extension CertificateGrants.Rule {
  init(_ rule: AuthenticationSettings.CertificateRule) {
    let text = String(rule.name.dropFirst(4))
    if rule.name.hasPrefix("dns:") {
      let lower = text.lowercased()
      name = lower.hasPrefix("*.") ? .dnsBelow(String(lower.dropFirst())) : .dns(lower)
    } else {
      name = text.hasSuffix("*") ? .uriPrefix(String(text.dropLast())) : .uri(text)
    }
    scopes = rule.scopes.reduce(into: []) { $0.formUnion(Scopes(word: $1) ?? []) }
    // This does not fail, since the configuration was checked when it was read.
    sessions = (try? NamePatterns(rule.sessions)) ?? .none
    topics = (try? NamePatterns(rule.topics)) ?? .none
  }
}

extension Substring {
  fileprivate var isLabel: Bool { !isEmpty && !utf8.contains(UInt8(ascii: ".")) }
}
