import RedisProtocol

/// A script of the protocol. Redis executes it in one step. It checks its conditions before the first write.
///
/// The meaning of a script never changes, because gateways of several versions run side by side, each with its own
/// scripts.
package struct ReplicationScript: Sendable {
  package let script: RedisScript
  /// The number of keys. They precede the other arguments.
  package let keyCount: Int

  private init(_ text: [UInt8], keys: Int) {
    script = RedisScript(String(decoding: text, as: UTF8.self))
    keyCount = keys
  }

  package static let heartbeat = ReplicationScript(PackageResources.heartbeat_lua, keys: 1)
  package static let acquire = ReplicationScript(PackageResources.acquire_lua, keys: 5)
  package static let append = ReplicationScript(PackageResources.append_lua, keys: 4)
  package static let stage = ReplicationScript(PackageResources.stage_lua, keys: 2)
  package static let replace = ReplicationScript(PackageResources.replace_lua, keys: 3)
  package static let stamp = ReplicationScript(PackageResources.stamp_lua, keys: 2)
  package static let release = ReplicationScript(PackageResources.release_lua, keys: 2)
  package static let define = ReplicationScript(PackageResources.define_lua, keys: 5)
  package static let remove = ReplicationScript(PackageResources.remove_lua, keys: 8)

  package static let all = [heartbeat, acquire, append, stage, replace, stamp, release, define, remove]
}
