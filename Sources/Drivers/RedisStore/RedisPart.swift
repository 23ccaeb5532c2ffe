import ByteStreams
import RESPCodec
import Redis
import RedisProtocol

/// A part of a command: its name, or an argument.
enum RedisPart: ExpressibleByStringLiteral {
  case literal(StaticString)
  case text(String)
  case bytes([UInt8])
  /// Written in decimal digits.
  case decimal(UInt64)

  init(stringLiteral literal: StaticString) { self = .literal(literal) }

  /// A part with the bytes that `write` appends.
  static func written(_ write: (inout ByteQueue) -> Void) -> RedisPart {
    var output = ByteQueue()
    write(&output)
    return .bytes(output.copyBytes())
  }
}

extension RedisConnection {
  func send(_ command: [RedisPart], isShort: Bool, completion: @escaping RedisPipeline.Completion) -> SendResult {
    send(parts: command.count, isShort: isShort) { parts in
      for part in command {
        switch part {
        case .literal(let text): parts.append(text)
        case .text(let text): parts.append(text)
        case .bytes(let bytes): parts.append(bytes)
        case .decimal(let value): parts.append(decimal: value)
        }
      }
    } completion: {
      completion($0)
    }
  }
}
