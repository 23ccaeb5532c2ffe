import ByteStreams
import RESPCodec
import RedisProtocol
import Replication

/// A script, with its name and number of keys.
struct StoreScript {
  /// The value of the metric label `script`.
  let name: String
  let script: RedisScript
  private let keyCount: Int

  private init(_ name: String, _ script: RedisScript, keys: Int) {
    self.name = name
    self.script = script
    keyCount = keys
  }

  private init(_ name: String, _ shared: ReplicationScript) {
    self.init(name, shared.script, keys: shared.keyCount)
  }

  static let heartbeat = StoreScript("heartbeat", .heartbeat)
  static let acquire = StoreScript("acquire", .acquire)
  static let append = StoreScript("append", .append)
  static let stage = StoreScript("stage", .stage)
  static let replace = StoreScript("replace", .replace)
  static let stamp = StoreScript("stamp", .stamp)
  static let release = StoreScript("release", .release)
  static let define = StoreScript("define", .define)
  static let remove = StoreScript("remove", .remove)
  /// The script only reads, so it is not part of the protocol in `Replication`.
  static let read = StoreScript(
    "read", RedisScript(String(decoding: PackageResources.read_lua, as: UTF8.self)), keys: 3)

  static let names = [heartbeat, acquire, append, stage, replace, stamp, release, define, remove, read].map(\.name)

  static let all = ReplicationScript.all.map(\.script) + [read.script]

  /// Returns the command that runs the script.
  func command(keys: [String], _ arguments: [RESPPart]) -> [RESPPart] {
    precondition(keys.count == keyCount, "the script has another number of keys")
    return ["EVALSHA", .bytes(script.digest), .decimal(UInt64(keyCount))] + keys.map { .text($0) } + arguments
  }
}
