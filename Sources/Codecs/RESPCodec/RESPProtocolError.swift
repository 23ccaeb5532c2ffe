/// Why bytes are not a reply of a Redis server.
package enum RESPProtocolError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The first byte of a value is not `+`, `-`, `:`, `$` or `*`.
  case unknownType(UInt8)
  /// A line contains a CR or LF that is not part of its CRLF.
  case malformedLine
  case malformedInteger
  /// The length of a string or array.
  case malformedLength
  /// A string is not followed by CRLF.
  case missingLineEnd
  case lineTooLong(limit: Int)
  case replyTooLarge(limit: Int)
  case tooManyElements(limit: Int)
  case tooDeep(limit: Int)

  package var description: String {
    switch self {
    case .unknownType(let byte): "a value begins with byte \(byte): RESP2 has '+', '-', ':', '$' and '*'"
    case .malformedLine: "a line contains a CR or LF: it must end with CRLF and contain neither"
    case .malformedInteger: "a number is not a decimal integer of 64 bits"
    case .malformedLength: "a length is neither -1 nor a decimal number from 0"
    case .missingLineEnd: "a string is not followed by CRLF"
    case .lineTooLong(let limit): "a line has more than \(limit) bytes"
    case .replyTooLarge(let limit): "a reply has more than \(limit) bytes"
    case .tooManyElements(let limit): "a reply has more than \(limit) values"
    case .tooDeep(let limit): "a reply has arrays nested deeper than \(limit) levels"
    }
  }
}
