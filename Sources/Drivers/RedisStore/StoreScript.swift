import ByteStreams
import RESPCodec
import RedisProtocol
import Replication

/// A script as commands name it.
struct StoreScript {
  /// The value of the label `script` of metrics.
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
  /// It only reads, so it is no part of the protocol.
  static let read = StoreScript(
    "read", RedisScript(String(decoding: PackageResources.read_lua, as: UTF8.self)), keys: 3)

  static let names = [heartbeat, acquire, append, stage, replace, stamp, release, define, remove, read].map(\.name)

  static let all = ReplicationScript.all.map(\.script) + [read.script]

  /// EVALSHA, the digest and the number of keys. The keys follow, and then the arguments.
  static var leadingParts: Int { 3 }

  func begin(_ parts: inout RESPCommandParts) {
    parts.append("EVALSHA")
    parts.append(script.digest)
    parts.append(decimal: UInt64(keyCount))
  }
}

/// The text of a value in commands.
func text(_ write: (inout ByteQueue) -> Void) -> [UInt8] {
  var output = ByteQueue()
  write(&output)
  return output.copyBytes()
}
