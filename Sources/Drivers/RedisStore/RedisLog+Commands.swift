import ByteStreams
import Host
import RESPCodec
import Reactor
import Redis
import RedisProtocol
import Replication

/// Encodes the commands of a log as Redis commands, and decodes the replies.
extension RedisLog {
  /// About how many sessions a page has. If all definitions have the maximum length, a page has 16 MiB.
  private static var pageCount: UInt64 { 1_000 }

  /// - Returns: the script (nil if the command is not a script), and all parts.
  func encode(_ command: LogCommand) -> (script: StoreScript?, parts: [RESPPart]) {
    func script(_ script: StoreScript, keys: [String], _ arguments: [RESPPart]) -> (StoreScript?, [RESPPart]) {
      (script, script.command(keys: keys, arguments))
    }
    switch command {
    case .heartbeat(let gateway, let entry, let old):
      return script(
        .heartbeat, keys: [keys.gateways],
        [.id(gateway), .bytes(entry)] + old.flatMap { [.id($0.gateway), .bytes($0.text)] })
    // A script would cost Redis more than these two commands, and both can be repeated without harm.
    case .shareSecret: return (nil, ["GET", .text(keys.secret)])
    case .storeHosts(let gateway, let text): return (nil, ["HSET", .text(keys.hosts), .id(gateway), .text(text)])
    case .readHosts(let gateway): return (nil, ["HGET", .text(keys.hosts), .id(gateway)])
    case .forgetHosts(let gateways): return (nil, ["HDEL", .text(keys.hosts)] + gateways.map { .id($0) })
    case .acquire(let acquisition, let name):
      let session = keys.session(name)
      let expected = acquisition.expected
      let created = SessionDefinition.parts(of: name)
      return script(
        .acquire, keys: [session.record, session.pushes, keys.gateways, session.channel, keys.list],
        [
          expected.token.map { .token($0) } ?? "", .text(expected.history), .decimal(expected.sequence),
          expected.last == .none ? "" : .written(expected.last.write), acquisition.owner.map { .id($0) } ?? "",
          .bytes(acquisition.entry ?? []), .token(acquisition.token), .text(acquisition.history),
          .written { $0.append(hexadecimal: acquisition.epoch, digits: 12) }, .written(acquisition.terms.write),
          .decimal(UInt64(SharedRecord.newestFormat)), .decimal(UInt64(acquisition.token.term.counter)),
          .text(String(created?.name ?? "")), .text(String(created?.incarnation ?? "")),
        ])
    case .append(let name, let condition, let number, let firstKept, let changes, let pushes):
      let session = keys.session(name)
      return script(
        .append, keys: [session.record, session.pushes, session.changes, session.channel],
        [
          .token(condition.token), .text(condition.history), .decimal(condition.sequence), .decimal(number),
          firstKept.map { .decimal($0) } ?? "", .bytes(changes),
        ] + pushes.flatMap { [.written($0.id.write), .bytes($0.bytes)] })
    case .stage(let name, let condition, let number, let part, let bytes):
      let session = keys.session(name)
      return script(
        .stage, keys: [session.record, session.staged],
        [
          .token(condition.token), .text(condition.history), .decimal(number), .decimal(UInt64(part)), .bytes(bytes),
        ])
    case .replace(let name, let condition, let number, let parts):
      let session = keys.session(name)
      return script(
        .replace, keys: [session.record, session.changes, session.staged],
        [
          .token(condition.token), .text(condition.history), .decimal(condition.sequence), .decimal(number),
          .decimal(UInt64(parts)),
        ])
    case .stamp(let name, let condition, let history, let counter):
      let session = keys.session(name)
      return script(
        .stamp, keys: [session.record, session.channel],
        [
          .token(condition.token), .text(condition.history), .text(history), .decimal(condition.sequence),
          .decimal(UInt64(counter)),
        ])
    case .release(let name, let condition, let successor):
      let session = keys.session(name)
      return script(
        .release, keys: [session.record, session.channel],
        [
          .token(condition.token), .text(condition.history), .decimal(condition.sequence),
          successor.map { .id($0) } ?? "",
        ])
    case .read(let name, let stream, let last, let bytes):
      let session = keys.session(name)
      return script(
        .read, keys: [session.record, session.pushes, stream == .pushes ? session.pushes : session.changes],
        [
          .written { output in
            output.append(UInt8(ascii: "("))
            last.write(into: &output)
          }, .decimal(UInt64(bytes)),
        ] + SharedRecord.fieldNames.map { .literal($0) })
    case .notify(let subject, let message):
      return (nil, ["PUBLISH", .text(keys.channel(of: subject)), .bytes(message)])
    case .define(let name, let definition, let limits, let first, let newList):
      return script(
        .define,
        keys: [
          keys.list, keys.owners, keys.removed, keys.channel(of: .definitions),
          keys.session(definition.storedName(name)).record,
        ],
        [
          .text(name), .bytes(definition.text), .text(definition.owner),
          limits.map { .decimal(UInt64($0.total)) } ?? "", limits.map { .decimal(UInt64($0.perOwner)) } ?? "",
          first.map { .id($0) } ?? "", .written { $0.append(hexadecimal: newList, digits: 16) },
        ])
    case .remove(let name, let definition, let code, let holder):
      let session = keys.session(definition.storedName(name))
      return script(
        .remove,
        keys: [
          keys.list, keys.owners, keys.removed, keys.channel(of: .definitions), session.record, session.pushes,
          session.changes, session.staged,
        ],
        [
          .text(name), .bytes(definition.text), .text(definition.owner), holder.map { .token($0) } ?? "",
          .decimal(UInt64(code)),
          // Redis remembers removed incarnations, so that a gateway that was unreachable does not define the session
          // again.
          .decimal(UInt64(RemovedIncarnations.limit)),
        ])
    case .readVersion: return (nil, ["HGET", .text(keys.list), ""])
    case .readDefinition(let name): return (nil, ["HGET", .text(keys.list), .text(name)])
    case .readPage(let cursor):
      return (nil, ["HSCAN", .text(keys.list), .bytes(cursor), "COUNT", .decimal(Self.pageCount)])
    case .readMemory: return (nil, ["INFO", "memory"])
    case .readReplication: return (nil, ["INFO", "replication"])
    }
  }

  /// A command that must be sent before `command`. Its reply is ignored.
  func prelude(of command: LogCommand) -> [RESPPart]? {
    guard case .shareSecret(let text) = command else { return nil }
    return ["SETNX", .text(keys.secret), .text(text)]
  }

  static func decode(_ reply: RESPReply, to command: LogCommand) -> LogReply {
    switch command {
    case .acquire, .append, .stage, .replace, .stamp, .release:
      return (reply.elements?.first ?? reply).text == "OK" ? .done : .other
    case .heartbeat: return reply.elements.map { .gateways(gateways(in: $0)) } ?? .malformed
    case .shareSecret, .readHosts, .readVersion, .readDefinition, .readMemory: return .value(reply.bytes)
    case .storeHosts, .forgetHosts, .notify: return .done
    case .read: return StreamPart(reply).map { .part($0) } ?? .malformed
    case .define, .remove: return .definition(DefinitionReply(reply))
    case .readPage: return DefinitionPage(reply).map { .page($0) } ?? .malformed
    case .readReplication: return reply.text.map { .replication(history: history(in: $0), text: $0) } ?? .malformed
    }
  }

  private static func gateways(in elements: [RESPReply]) -> [(gateway: GatewayID, text: [UInt8])] {
    var entries: [(gateway: GatewayID, text: [UInt8])] = []
    for index in stride(from: 0, to: elements.count - 1, by: 2) {
      guard let gateway = elements[index].bytes.flatMap({ GatewayID($0.span) }), let text = elements[index + 1].bytes
      else { continue }
      entries.append((gateway, text))
    }
    return entries
  }

  /// Returns `master_replid` of a reply to `INFO replication`.
  private static func history(in information: String) -> String? {
    for line in information.split(whereSeparator: \.isNewline) where line.hasPrefix("master_replid:") {
      return String(line.dropFirst("master_replid:".count))
    }
    return nil
  }
}

extension RESPPart {
  fileprivate static func id(_ gateway: GatewayID) -> RESPPart { .written(gateway.write) }
  fileprivate static func token(_ token: HolderToken) -> RESPPart { .written(token.write) }
}

extension StreamPart {
  /// Returns nil if the reply is malformed.
  fileprivate init?(_ reply: RESPReply) {
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
    self.init(record: record, entries: entries, hasMore: more != 0)
  }
}

extension DefinitionReply {
  fileprivate init(_ reply: RESPReply) {
    let parts = reply.elements ?? []
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

extension DefinitionPage {
  /// Returns nil if the reply is malformed.
  fileprivate init?(_ reply: RESPReply) {
    guard let parts = reply.elements, parts.count == 2, let cursor = parts[0].bytes, let list = parts[1].elements,
      list.count % 2 == 0
    else { return nil }
    var entries: [(name: [UInt8], text: [UInt8])] = []
    for index in stride(from: 0, to: list.count, by: 2) {
      guard let name = list[index].bytes, let text = list[index + 1].bytes else { return nil }
      entries.append((name, text))
    }
    self.init(cursor: cursor, entries: entries)
  }
}
