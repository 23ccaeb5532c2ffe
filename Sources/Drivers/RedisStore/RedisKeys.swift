/// The keys of a log. The braces put all of them into one slot of a Redis cluster.
struct RedisKeys {
  private let base: String
  let gateways: String
  /// The hash of the hosts to which each gateway connects its sessions.
  let hosts: String
  /// The secret of the gateways.
  let secret: String
  /// The list of created sessions.
  let list: String
  let owners: String
  let removed: String
  /// A channel without subscribers.
  let nobody: String

  init(prefix: String) {
    base = "{\(prefix)}:"
    gateways = base + "gateways"
    hosts = base + "hosts"
    secret = base + "peers"
    list = base + "sessions"
    owners = list + ":owners"
    removed = list + ":removed"
    nobody = base + "nobody"
  }

  func session(_ name: String) -> SessionKeys { SessionKeys(base + "s:\(name):") }

  func channel(of subject: LogSubject) -> String {
    switch subject {
    case .session(let name): session(name).channel
    case .definitions: list + ":n"
    }
  }

  /// Returns nil if the channel has no subject.
  func subject(of channel: String) -> LogSubject? {
    if channel == list + ":n" { return .definitions }
    let base = base + "s:"
    guard channel.hasPrefix(base), channel.hasSuffix(":n") else { return nil }
    return .session(String(channel.dropFirst(base.count).dropLast(2)))
  }
}

/// The keys of one session.
struct SessionKeys {
  let record: String
  let pushes: String
  let changes: String
  let staged: String
  let channel: String

  fileprivate init(_ base: String) {
    record = base + "m"
    pushes = base + "p"
    changes = base + "c"
    staged = base + "c:new"
    channel = base + "n"
  }
}
