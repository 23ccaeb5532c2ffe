import ByteStreams
import COpenSSL

/// An OpenSSL BIO over the byte queues of a `TLSConnection`: OpenSSL reads the records of the connection from the BIO
/// and writes records to it.
///
/// OpenSSL's memory BIO would copy all bytes once more, and never shrinks after it has grown.
enum CiphertextBIO {
  // The table of functions of the BIO. It never changes, and is needed as long as the process runs.
  private nonisolated(unsafe) static let method = unsafe makeMethod()

  /// Returns a BIO for `connection`. The connection must outlive the BIO, which does not retain it.
  static func make(for connection: TLSConnection) -> OpaquePointer? {
    guard let bio = unsafe BIO_new(method) else { return nil }
    unsafe BIO_set_data(bio, Unmanaged.passUnretained(connection).toOpaque())
    unsafe BIO_set_init(bio, 1)
    return unsafe bio
  }

  private static func makeMethod() -> OpaquePointer? {
    guard let method = unsafe BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "byte queues") else {
      return nil
    }
    unsafe BIO_meth_set_read(method) { bio, buffer, capacity in
      guard let bio = unsafe bio, let buffer = unsafe buffer, capacity > 0, let data = unsafe BIO_get_data(bio) else {
        return 0
      }
      unsafe copenssl_clear_retry_flags(bio)
      let room = unsafe UnsafeMutableRawBufferPointer(start: buffer, count: Int(capacity))
      let count = unsafe Unmanaged<TLSConnection>.fromOpaque(data)._withUnsafeGuaranteedRef {
        unsafe $0.readCiphertext(room)
      }
      if count > 0 { return Int32(truncatingIfNeeded: count) }
      // There are no bytes at present. This is not the end of the stream, which the driver reports.
      unsafe copenssl_set_retry_read(bio)
      return -1
    }
    unsafe BIO_meth_set_write(method) { bio, bytes, count in
      guard let bio = unsafe bio, let bytes = unsafe bytes, count > 0, let data = unsafe BIO_get_data(bio) else {
        return 0
      }
      unsafe copenssl_clear_retry_flags(bio)
      let source = unsafe UnsafeRawBufferPointer(start: bytes, count: Int(count))
      unsafe Unmanaged<TLSConnection>.fromOpaque(data)._withUnsafeGuaranteedRef { unsafe $0.writeCiphertext(source) }
      return count
    }
    unsafe BIO_meth_set_ctrl(method) { _, command, _, _ in
      // A flush succeeds, since there is nothing to flush. The other commands are not needed.
      command == Int32(BIO_CTRL_FLUSH) ? 1 : 0
    }
    return unsafe method
  }
}
