import ByteStreams

/// The state of a server as reported by `INFO server` and `INFO replication`.
package struct RedisServerInformation: Hashable, Sendable {
  /// `redis_version`. Valkey reports the version of Redis with which it is compatible.
  package let version: String
  /// Changes with every start of the process.
  package let runID: String
  package let isPrimary: Bool
  /// `master_replid`, 40 hexadecimal digits: the history of the data. It changes when a replica is promoted, and when a
  /// primary restarts without its data.
  package let replicationID: String
  package let connectedReplicas: Int

  private static var requiredVersion: (major: Int, minor: Int) { (6, 2) }

  /// `server` and `replication` are the replies to `INFO server` and `INFO replication`.
  init(server: String, replication: String) throws(RedisFailure) {
    let server = try Self.checkedServer(server, mode: "standalone")
    let replication = Fields(replication)
    version = try server.required("redis_version")
    guard Self.isSufficient(version) else { throw .unsuitable(.version(version)) }
    runID = try server.required("run_id")
    isPrimary = try replication.required("role") == "master"
    replicationID = try replication.required("master_replid")
    guard replicationID.utf8.count == 40, replicationID.utf8.allSatisfy(ASCII.isHexDigit) else {
      throw .unsuitable(.noField("master_replid"))
    }
    connectedReplicas = Int(replication["connected_slaves"] ?? "") ?? 0
  }

  /// Checks that a server runs in `mode`: `standalone` or `sentinel`.
  @discardableResult
  static func checkedServer(_ text: String, mode: String) throws(RedisFailure) -> Fields {
    let fields = Fields(text)
    // Valkey 8 and later call this field `server_mode`.
    let found = try fields.required(fields["server_mode"] == nil ? "redis_mode" : "server_mode")
    guard found == mode else { throw .unsuitable(.mode(found)) }
    return fields
  }

  private static func isSufficient(_ version: String) -> Bool {
    let numbers = version.split(separator: ".").prefix(2).map { Int($0) ?? -1 }
    guard numbers.count == 2 else { return false }
    return (numbers[0], numbers[1]) >= requiredVersion
  }

  /// The lines `name:value` of a section.
  struct Fields {
    private var values: [Substring: Substring] = [:]

    /// Longer values are truncated to this number of characters, since error messages contain values.
    private static var valueLimit: Int { 64 }

    init(_ text: String) {
      for line in text.split(whereSeparator: \.isNewline) {
        guard let colon = line.firstIndex(of: ":") else { continue }
        values[line[..<colon]] = line[line.index(after: colon)...]
      }
    }

    subscript(name: String) -> String? {
      values[Substring(name)].map { PrintableText.escaped(String($0.prefix(Self.valueLimit))) }
    }

    func required(_ name: String) throws(RedisFailure) -> String {
      guard let value = self[name], !value.isEmpty else { throw .unsuitable(.noField(name)) }
      return value
    }
  }
}
