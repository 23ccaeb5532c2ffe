import ByteStreams
import Replication

/// The condition of a write, which an engine checks before the first change. The condition is met if the gateway
/// is still the holder, the history has not changed, and no other write followed the gateway's last write.
package struct LogCondition {
  package let token: HolderToken
  package let history: String
  /// The sequence of the record after the gateway's last write.
  package let sequence: UInt64

  package init(_ token: HolderToken, history: String, after sequence: UInt64) {
    self.token = token
    self.history = history
    self.sequence = sequence
  }
}

/// An entry of the pushes of a session.
package struct LogRow {
  package let id: PushEntryID
  package let bytes: [UInt8]

  package init(id: PushEntryID, bytes: [UInt8]) {
    self.id = id
    self.bytes = bytes
  }
}

package enum LogStream {
  case pushes
  case changes
}

/// A command to a log. It is executed completely or not at all. The scripts in `Sources/Machines/Replication/Scripts`
/// define the effects.
package enum LogCommand {
  // The gateways. Replies: `gateways`, `value`.
  /// - `forgetting`: the gateways whose entries are removed unless they have changed.
  case heartbeat(GatewayID, [UInt8], forgetting: [(gateway: GatewayID, text: [UInt8])])
  /// Stores the secret unless a secret is stored. Returns the stored secret.
  case shareSecret(String)
  case storeHosts(GatewayID, String)
  case readHosts(GatewayID)
  case forgetHosts([GatewayID])

  // A session. Replies: `done`, `other`; and `part` to a `read`.
  case acquire(Acquisition, String)
  /// - `number`: the sequence after this command. It does not change if the command is only a part of a write.
  /// - `firstKept`: pushes before it may be dropped; nil if all are kept.
  /// - `changes`: may be empty.
  case append(
    String, LogCondition, number: UInt64, firstKept: UInt64?, changes: [UInt8], pushes: ArraySlice<LogRow>)
  /// Stores a part of a state for `replace`. Parts are counted from 1. The sequence of the condition is not compared.
  case stage(String, LogCondition, number: UInt64, part: Int, [UInt8])
  case replace(String, LogCondition, number: UInt64, parts: Int)
  case stamp(String, LogCondition, history: String, counter: UInt32)
  case release(String, LogCondition, to: GatewayID?)
  /// Reads the record, and a part of a stream.
  ///
  /// - `after`: the part begins after this entry.
  /// - `bytes`: about how many bytes to read; 0 to read the record only.
  case read(String, LogStream, after: PushEntryID, bytes: Int)
  case notify(LogSubject, [UInt8])

  // The list of created sessions. Replies: `definition`, `value`, `page`.
  /// - `first`: the gateway that should acquire the session.
  /// - `newList`: the id of the new list if there is no list yet.
  case define(String, SessionDefinition, DefinitionLimits?, first: GatewayID?, newList: UInt64)
  /// - `holder`: removes the session only if this is its holder; nil to remove it in any case.
  case remove(String, SessionDefinition, code: UInt16, holder: HolderToken?)
  /// Reads the version of the list. The reply has no value if there is no list.
  case readVersion
  /// Reads the text of a definition. The reply has no value if the list does not have the session.
  case readDefinition(String)
  case readPage(from: [UInt8])

  // Reads the state of the engine. Reply: `value`, in the text format of Redis. Other engines reply without a value.
  case readMemory
  /// Reply: `replication`.
  case readReplication

  /// About how many bytes the command or its reply has. 0 if each has a few KiB at most.
  var bytes: Int {
    switch self {
    case .append(_, _, _, _, let changes, let pushes): changes.count + pushes.reduce(0) { $0 + $1.bytes.count }
    case .stage(_, _, _, _, let bytes): bytes.count
    case .read(_, _, _, let bytes): bytes
    case .define(_, let definition, _, _, _): definition.text.count
    case .remove(_, let definition, _, _): definition.text.count
    case .storeHosts(_, let text): text.utf8.count
    default: 0
    }
  }

  /// Whether the command stores entries. A full engine refuses such commands, but may accept all others.
  var hasEntries: Bool {
    switch self {
    case .append, .stage: true
    default: false
    }
  }
}

/// The result of a command.
package enum LogReply {
  case done
  /// The command has changed nothing, because its condition does not hold.
  case other
  case refused
  /// The stored data is damaged, or has an unknown format.
  case malformed
  case value([UInt8]?)
  /// The entries of all gateways before this heartbeat.
  case gateways([(gateway: GatewayID, text: [UInt8])])
  case part(StreamPart)
  case definition(DefinitionReply)
  case page(DefinitionPage)
  case replication(history: String?, text: String)

  var isDone: Bool { if case .done = self { true } else { false } }
  var isRefused: Bool { if case .refused = self { true } else { false } }
  var definition: DefinitionReply { if case .definition(let reply) = self { reply } else { .refused } }
  var value: [UInt8]? { if case .value(let bytes) = self { bytes } else { nil } }
}

/// The record of a session, and a part of a stream.
package struct StreamPart {
  package let record: SharedRecord
  package let entries: [(id: PushEntryID, bytes: [UInt8])]
  package let hasMore: Bool

  package init(record: SharedRecord, entries: [(id: PushEntryID, bytes: [UInt8])], hasMore: Bool) {
    self.record = record
    self.entries = entries
    self.hasMore = hasMore
  }

  /// About how many bytes one command reads. Redis executes no other command during a read. The first part of a stream
  /// is small, so that a `LogFlight` has room for many streams: most streams are short, or have few new entries.
  static func bytes(isFirst: Bool) -> Int { isFirst ? 256 << 10 : 4 << 20 }
}

/// The outcome of a change of the list.
package enum DefinitionReply {
  case done(version: [UInt8])
  /// The list has another definition of the session, whose text is the first value; empty if the list has no
  /// definition. `version` is nil if there is no list.
  case other([UInt8], version: [UInt8]?)
  case removed
  case tooMany
  case tooManyOfOwner
  /// Another gateway is the holder of the session.
  case fenced
  case refused
}

/// A page of the list.
package struct DefinitionPage {
  package let cursor: [UInt8]
  package let entries: [(name: [UInt8], text: [UInt8])]

  package init(cursor: [UInt8], entries: [(name: [UInt8], text: [UInt8])]) {
    self.cursor = cursor
    self.entries = entries
  }
}

/// Returns the bytes that `write` appends.
func text(_ write: (inout ByteQueue) -> Void) -> [UInt8] {
  var output = ByteQueue()
  write(&output)
  return output.copyBytes()
}
