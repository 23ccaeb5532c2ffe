import Foundation
import Testing

/// Two connected stream sockets that do not block.
func socketPair() -> (Int32, Int32) {
  var ends: [Int32] = [0, 0]
  let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
  #expect(unsafe socketpair(AF_UNIX, kind, 0, &ends) == 0)
  return (ends[0], ends[1])
}
