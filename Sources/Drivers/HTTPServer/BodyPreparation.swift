import ByteStreams

/// Work on a body that has arrived, before its request is finished. The server calls `advance` in turns, so that one body does not hold up the requests of
/// others.
package protocol BodyPreparation: AnyObject {
  /// Bytes of memory in use.
  var heldBytes: Int { get }

  /// Does a slice of the work on the whole body. Returns whether more is left.
  func advance(_ bytes: Span<UInt8>) -> Bool
}
