/// The hosts to which a gateway connects its configured sessions, as other gateways read them in Redis: a line `NAME
/// HOST,HOST` for each session.
///
/// Gateways with the same `store.prefix` share their sessions. If the hosts of a session differ, the gateways probably
/// belong to two installations, which take each other's messages. They may also belong to one installation whose URL is
/// being changed, so the difference is reported, and not refused.
package struct UpstreamHosts: Equatable, Sendable {
  /// A session that two gateways connect to different hosts.
  package struct Difference: Equatable, Sendable {
    package let session: String
    package let own: String
    package let other: String
  }

  private let hosts: [String: String]

  package init(_ hosts: [String: [String]]) {
    self.hosts = hosts.mapValues { Set($0).sorted().joined(separator: ",") }
  }

  /// Ignores lines that are not pairs, since a later version may write such lines.
  package init(_ text: String) {
    var hosts: [String: String] = [:]
    for line in text.split(separator: "\n") {
      let parts = line.split(separator: " ")
      if parts.count == 2 { hosts[String(parts[0])] = String(parts[1]) }
    }
    self.hosts = hosts
  }

  package var text: String { hosts.sorted { $0.key < $1.key }.map { "\($0) \($1)\n" }.joined() }

  /// The first session, by name, that both gateways have with different hosts; nil if there is none.
  package func difference(from other: UpstreamHosts) -> Difference? {
    for (session, own) in hosts.sorted(by: { $0.key < $1.key }) {
      if let theirs = other.hosts[session], theirs != own {
        return Difference(session: session, own: own, other: theirs)
      }
    }
    return nil
  }
}
