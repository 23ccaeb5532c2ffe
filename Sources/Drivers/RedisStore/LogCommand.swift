import ByteStreams
import Replication

/// What an engine compares before the first change: a gateway writes only while it is the holder, in the history that it knows, and after its own last
/// write.
package struct LogCondition {
  package let token: HolderToken
  package let history: String
  /// The sequence of the record.
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

/// A step of the protocol, which is executed whole or not at all. `Sources/Machines/Replication/Scripts` says what each does.
package enum LogCommand {
  // The gateways. Replies: `gateways`, `value`.
  /// - `forgetting`: gateways whose entries are to be removed unless they have changed.
  case heartbeat(GatewayID, [UInt8], forgetting: [(gateway: GatewayID, text: [UInt8])])
  /// Stores the secret unless another is stored, and returns the stored secret.
  case shareSecret(String)
  case storeHosts(GatewayID, String)
  case readHosts(GatewayID)
  case forgetHosts([GatewayID])

  // A session. Replies: `done`, `other`; and `part` of a `read`.
  case acquire(Acquisition, String)
  /// - `number`: the sequence of this write; the same as before if it is only a part.
  /// - `firstKept`: earlier pushes may be dropped; nil if all are kept.
  /// - `changes`: empty if there are none.
  case append(
    String, LogCondition, number: UInt64, firstKept: UInt64?, changes: [UInt8], pushes: ArraySlice<LogRow>)
  /// A part of a state, from 1, for `replace`. The sequence is not compared.
  case stage(String, LogCondition, number: UInt64, part: Int, [UInt8])
  case replace(String, LogCondition, number: UInt64, parts: Int)
  case stamp(String, LogCondition, history: String, counter: UInt32)
  case release(String, LogCondition, to: GatewayID?)
  /// The record, and a part of a stream.
  ///
  /// - `after`: what is read is after this entry.
  /// - `bytes`: about how many; 0 for the record alone.
  case read(String, LogStream, after: PushEntryID, bytes: Int)
  case notify(LogTopic, [UInt8])

  // The list of sessions that clients create. Replies: `definition`, `value`, `page`.
  /// - `first`: the gateway that is to acquire it.
  /// - `newList`: names the list if there is none.
  case define(String, SessionDefinition, DefinitionLimits?, first: GatewayID?, newList: UInt64)
  /// - `holder`: nil if anyone may hold it.
  case remove(String, SessionDefinition, code: UInt16, holder: HolderToken?)
  /// The version of the list; no value if there is none.
  case readVersion
  /// The text of a definition; no value if there is none.
  case readDefinition(String)
  case readPage(from: [UInt8])

  // What the engine says of itself. Reply: `value`, as text of Redis; other engines have none.
  case readMemory
  /// Reply: `replication`.
  case readReplication

  /// About how many bytes it has, or its reply; 0 for a few KiB at most.
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

  /// An engine that is full may accept everything else.
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
  /// The command has changed nothing, since it has found something else than it expects.
  case other
  case refused
  /// What is stored is damaged, or of another format.
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

  /// About how many bytes are read at once. Redis does nothing else meanwhile. A flight has room for the first parts of many streams, since most are
  /// short or have changed by little.
  static func bytes(isFirst: Bool) -> Int { isFirst ? 256 << 10 : 4 << 20 }
}

/// What became of a change of the list.
package enum DefinitionReply {
  case done(version: [UInt8])
  /// The stored definition; empty if there is none. And the version of the list, if there is one.
  case other([UInt8], version: [UInt8]?)
  case removed
  case tooMany
  case tooManyOfOwner
  /// Another gateway holds the session.
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

/// The text of a value in commands.
func text(_ write: (inout ByteQueue) -> Void) -> [UInt8] {
  var output = ByteQueue()
  write(&output)
  return output.copyBytes()
}
