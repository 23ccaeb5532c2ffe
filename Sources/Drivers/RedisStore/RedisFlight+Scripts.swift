import ByteStreams
import RESPCodec
import Replication

/// What became of a `read`.
enum StreamReading {
  case part(StreamPart)
  case refused
  /// The session is damaged, or of another format.
  case malformed
}

/// What a `read` returns: the record of a session, and a part of a stream.
struct StreamPart {
  let record: SharedRecord
  let entries: [(id: PushEntryID, bytes: [UInt8])]
  let hasMore: Bool

  /// About how many bytes are read at once. Redis does nothing else meanwhile. A flight has room for the first parts of many streams, since most are
  /// short or have changed by little.
  static func bytes(isFirst: Bool) -> Int { isFirst ? 256 << 10 : 4 << 20 }

  /// Returns nil if the reply is malformed.
  init?(_ reply: RESPReply) {
    guard let parts = reply.elements, parts.count == 4, let values = parts[0].elements, let last = parts[1].bytes,
      let list = parts[2].elements, let more = parts[3].integer, list.count % 2 == 0
    else { return nil }
    let fields: [[UInt8]?] = values.map(\.bytes)
    guard let record = SharedRecord(fields: fields, lastEntry: last.isEmpty ? nil : last) else { return nil }
    var entries: [(id: PushEntryID, bytes: [UInt8])] = []
    for index in stride(from: 0, to: list.count, by: 2) {
      guard let id = list[index].bytes.flatMap({ PushEntryID($0.span) }), let bytes = list[index + 1].bytes else {
        return nil
      }
      entries.append((id, bytes))
    }
    self.record = record
    self.entries = entries
    hasMore = more != 0
  }
}

/// The scripts as commands.
extension RedisFlight {
  /// Reads the record of a session, and a part of a stream.
  ///
  /// - Parameters:
  ///   - last: what is read is after this entry.
  ///   - bytes: about how many; 0: only the record.
  func read(
    _ keys: SessionKeys, _ stream: String, after last: PushEntryID, bytes: Int,
    then: @escaping (StreamReading, Bool) -> Void
  ) {
    noteReading()
    let names = SharedRecord.fieldNames
    send(.read, parts: StoreScript.leadingParts + 5 + names.count, bytes: bytes) { parts in
      StoreScript.read.begin(&parts)
      parts.append(keys.record)
      parts.append(keys.pushes)
      parts.append(stream)
      parts.append(
        text { output in
          output.append(UInt8(ascii: "("))
          last.write(into: &output)
        })
      parts.append(decimal: UInt64(bytes))
      for name in names { parts.append(name) }
    } then: { reply, isConfirmed in
      guard let reply else { return then(.refused, isConfirmed) }
      then(StreamPart(reply).map { .part($0) } ?? .malformed, isConfirmed)
    }
  }

  /// Notifies all gateways that use the session.
  func notify(_ keys: SessionKeys, _ bits: [UInt8]) {
    send(parts: 3) { parts in
      parts.append("PUBLISH")
      parts.append(keys.channel)
      parts.append(bits)
    } then: { _, _ in
      // What matters is repeated.
    }
  }

  /// - Parameter name: of the session in the store.
  func acquire(
    _ acquisition: Acquisition, of name: String, _ keys: SessionKeys, gateways: String, _ list: DefinitionKeys,
    then: @escaping (Bool, Bool) -> Void
  ) {
    let expected = acquisition.expected
    let created = SessionDefinition.parts(of: name)
    send(.acquire, parts: StoreScript.leadingParts + 19) { parts in
      StoreScript.acquire.begin(&parts)
      parts.append(keys.record)
      parts.append(keys.pushes)
      parts.append(gateways)
      parts.append(keys.channel)
      parts.append(list.list)
      parts.append(text { expected.token?.write(into: &$0) })
      parts.append(expected.history)
      parts.append(decimal: expected.sequence)
      parts.append(expected.last == .none ? [] : text { expected.last.write(into: &$0) })
      parts.append(text { acquisition.owner?.write(into: &$0) })
      parts.append(acquisition.entry ?? [])
      parts.append(text { acquisition.token.write(into: &$0) })
      parts.append(acquisition.history)
      parts.append(text { $0.append(hexadecimal: acquisition.epoch, digits: 12) })
      parts.append(text { acquisition.terms.write(into: &$0) })
      parts.append(decimal: UInt64(SharedRecord.newestFormat))
      parts.append(decimal: UInt64(acquisition.token.term.counter))
      parts.append(String(created?.name ?? ""))
      parts.append(String(created?.incarnation ?? ""))
    } then: { reply, isConfirmed in
      then(Self.isOK(reply), isConfirmed)
    }
  }

  /// - Parameters:
  ///   - firstKept: of the pushes; nil: all.
  ///   - changes: empty: none.
  func append(
    _ keys: SessionKeys, _ token: HolderToken, history: String, expected: UInt64, number: UInt64, firstKept: UInt64?,
    changes: [UInt8], pushes: ArraySlice<SessionWrite.Row>, then: @escaping (Bool, Bool) -> Void
  ) {
    noteEntries()
    let bytes = changes.count + pushes.reduce(0) { $0 + $1.bytes.count }
    send(.append, parts: StoreScript.leadingParts + 10 + 2 * pushes.count, bytes: bytes) { parts in
      StoreScript.append.begin(&parts)
      parts.append(keys.record)
      parts.append(keys.pushes)
      parts.append(keys.changes)
      parts.append(keys.channel)
      parts.append(text { token.write(into: &$0) })
      parts.append(history)
      parts.append(decimal: expected)
      parts.append(decimal: number)
      if let firstKept { parts.append(decimal: firstKept) } else { parts.append("") }
      parts.append(changes)
      for row in pushes {
        parts.append(text { row.id.write(into: &$0) })
        parts.append(row.bytes)
      }
    } then: { reply, isConfirmed in
      then(Self.isOK(reply), isConfirmed)
    }
  }

  func stage(
    _ keys: SessionKeys, _ token: HolderToken, history: String, number: UInt64, part: Int, _ bytes: [UInt8],
    then: @escaping (Bool, Bool) -> Void
  ) {
    noteEntries()
    send(.stage, parts: StoreScript.leadingParts + 7, bytes: bytes.count) { parts in
      StoreScript.stage.begin(&parts)
      parts.append(keys.record)
      parts.append(keys.staged)
      parts.append(text { token.write(into: &$0) })
      parts.append(history)
      parts.append(decimal: number)
      parts.append(decimal: UInt64(part))
      parts.append(bytes)
    } then: { reply, isConfirmed in
      then(Self.isOK(reply), isConfirmed)
    }
  }

  func replace(
    _ keys: SessionKeys, _ token: HolderToken, history: String, expected: UInt64, number: UInt64, parts count: Int,
    then: @escaping (Bool, Bool) -> Void
  ) {
    send(.replace, parts: StoreScript.leadingParts + 8) { parts in
      StoreScript.replace.begin(&parts)
      parts.append(keys.record)
      parts.append(keys.changes)
      parts.append(keys.staged)
      parts.append(text { token.write(into: &$0) })
      parts.append(history)
      parts.append(decimal: expected)
      parts.append(decimal: number)
      parts.append(decimal: UInt64(count))
    } then: { reply, isConfirmed in
      then(Self.isOK(reply), isConfirmed)
    }
  }

  func stamp(
    _ keys: SessionKeys, _ token: HolderToken, from: String, to: String, expected: UInt64, counter: UInt32,
    then: @escaping (Bool, Bool) -> Void
  ) {
    send(.stamp, parts: StoreScript.leadingParts + 7) { parts in
      StoreScript.stamp.begin(&parts)
      parts.append(keys.record)
      parts.append(keys.channel)
      parts.append(text { token.write(into: &$0) })
      parts.append(from)
      parts.append(to)
      parts.append(decimal: expected)
      parts.append(decimal: UInt64(counter))
    } then: { reply, isConfirmed in
      then(Self.isOK(reply), isConfirmed)
    }
  }

  func release(
    _ keys: SessionKeys, _ token: HolderToken, history: String, expected: UInt64, to successor: GatewayID?,
    then: @escaping (Bool, Bool) -> Void
  ) {
    send(.release, parts: StoreScript.leadingParts + 6) { parts in
      StoreScript.release.begin(&parts)
      parts.append(keys.record)
      parts.append(keys.channel)
      parts.append(text { token.write(into: &$0) })
      parts.append(history)
      parts.append(decimal: expected)
      parts.append(text { successor?.write(into: &$0) })
    } then: { reply, isConfirmed in
      then(Self.isOK(reply), isConfirmed)
    }
  }

  private static func isOK(_ reply: RESPReply?) -> Bool {
    guard let reply else { return false }
    return (reply.elements?.first ?? reply).text == "OK"
  }
}
