import ByteStreams
import RESPCodec
import Replication

/// The keys of the list of sessions that clients have created.
struct DefinitionKeys {
  let list: String
  let owners: String
  let removed: String
  let channel: String

  init(prefix: String) {
    list = "{\(prefix)}:sessions"
    owners = list + ":owners"
    removed = list + ":removed"
    channel = list + ":n"
  }
}

/// What a script of the list has returned.
enum DefinitionReply {
  case done(version: [UInt8])
  /// The definition that Redis has; empty: none. And the version of the list, if there is one.
  case other([UInt8], version: [UInt8]?)
  case removed
  case tooMany
  case tooManyOfOwner
  /// Another gateway holds the session.
  case fenced
  case refused

  init(_ reply: RESPReply?) {
    let parts = reply?.elements ?? []
    let value = parts.count > 1 ? parts[1].bytes ?? [] : []
    self =
      switch parts.first?.text {
      case "OK": .done(version: value)
      case "EXISTS", "CHANGED": .other(value, version: parts.count > 2 ? parts[2].bytes : nil)
      case "REMOVED": .removed
      case "TOTAL": .tooMany
      case "OWNER": .tooManyOfOwner
      case "FENCED": .fenced
      default: .refused
      }
  }
}

/// A page of the list.
struct DefinitionPage {
  let cursor: [UInt8]
  let entries: [(name: [UInt8], text: [UInt8])]

  /// Returns nil if the reply is malformed.
  init?(_ reply: RESPReply) {
    guard let parts = reply.elements, parts.count == 2, let cursor = parts[0].bytes, let list = parts[1].elements,
      list.count % 2 == 0
    else { return nil }
    var entries: [(name: [UInt8], text: [UInt8])] = []
    for index in stride(from: 0, to: list.count, by: 2) {
      guard let name = list[index].bytes, let text = list[index + 1].bytes else { return nil }
      entries.append((name, text))
    }
    self.cursor = cursor
    self.entries = entries
  }
}

/// The list as commands.
extension RedisFlight {
  /// About so many sessions are read at once: with the longest definitions 16 MiB.
  private static var pageCount: UInt64 { 1_000 }

  /// - Parameter first: the gateway that is to acquire it.
  func define(
    _ change: DefinitionChange, _ limits: DefinitionLimits?, _ keys: DefinitionKeys, _ session: SessionKeys,
    first: GatewayID?, newList: UInt64, then: @escaping (DefinitionReply, Bool) -> Void
  ) {
    let definition = change.definition.text
    send(.define, parts: StoreScript.leadingParts + 12, bytes: definition.count) { parts in
      StoreScript.define.begin(&parts)
      parts.append(keys.list)
      parts.append(keys.owners)
      parts.append(keys.removed)
      parts.append(keys.channel)
      parts.append(session.record)
      parts.append(change.name)
      parts.append(definition)
      parts.append(change.definition.owner)
      if let limits {
        parts.append(decimal: UInt64(limits.total))
        parts.append(decimal: UInt64(limits.perOwner))
      } else {
        parts.append("")
        parts.append("")
      }
      parts.append(text { first?.write(into: &$0) })
      parts.append(text { $0.append(hexadecimal: newList, digits: 16) })
    } then: { reply, isConfirmed in
      then(DefinitionReply(reply), isConfirmed)
    }
  }

  /// - Parameter holder: nil: any.
  func remove(
    _ change: DefinitionChange, code: UInt16, holder: HolderToken?, _ keys: DefinitionKeys, _ session: SessionKeys,
    then: @escaping (DefinitionReply, Bool) -> Void
  ) {
    let definition = change.definition.text
    send(.remove, parts: StoreScript.leadingParts + 14, bytes: definition.count) { parts in
      StoreScript.remove.begin(&parts)
      parts.append(keys.list)
      parts.append(keys.owners)
      parts.append(keys.removed)
      parts.append(keys.channel)
      parts.append(session.record)
      parts.append(session.pushes)
      parts.append(session.changes)
      parts.append(session.staged)
      parts.append(change.name)
      parts.append(definition)
      parts.append(change.definition.owner)
      parts.append(text { holder?.write(into: &$0) })
      parts.append(decimal: UInt64(code))
      // So that a gateway that was away does not define the session again.
      parts.append(decimal: UInt64(RemovedIncarnations.limit))
    } then: { reply, isConfirmed in
      then(DefinitionReply(reply), isConfirmed)
    }
  }

  /// The version of the list; nil if there is none, or Redis has refused.
  func readVersion(_ keys: DefinitionKeys, then: @escaping ([UInt8]?) -> Void) {
    send(parts: 3) { parts in
      parts.append("HGET")
      parts.append(keys.list)
      parts.append("")
    } then: { reply, _ in
      then(reply?.bytes)
    }
  }

  /// The text of a definition; nil if there is none.
  func readDefinition(
    _ keys: DefinitionKeys, _ name: String, then: @escaping (_ text: [UInt8]?, _ isRefused: Bool) -> Void
  ) {
    send(parts: 3) { parts in
      parts.append("HGET")
      parts.append(keys.list)
      parts.append(name)
    } then: { reply, _ in
      then(reply?.bytes, reply == nil)
    }
  }

  /// A page of the list; nil if Redis has refused.
  func readPage(_ keys: DefinitionKeys, from cursor: [UInt8], then: @escaping (DefinitionPage?) -> Void) {
    send(parts: 5) { parts in
      parts.append("HSCAN")
      parts.append(keys.list)
      parts.append(cursor)
      parts.append("COUNT")
      parts.append(decimal: Self.pageCount)
    } then: { reply, _ in
      then(reply.flatMap { DefinitionPage($0) })
    }
  }
}
