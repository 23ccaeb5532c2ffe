import ByteStreams
import Host
import Reactor

/// A file that a connection attempt needs, such as a secret or a certificate. Another thread reads the file. Each file
/// has at most one read at a time.
package enum RequiredFile {
  package typealias Read = Result<[UInt8], FileError>
  package typealias Outcome = BlockingWork<Read>.Outcome

  /// The setting of the timeout, appended to error messages.
  static let timeoutHint = " ('upstream.timeouts.files')"

  /// Reads up to `limit` + 1 bytes, so that a file that is too large is detected.
  package static func work(_ path: String, atMost limit: Int, within span: TimeSpan) -> BlockingWork<Read> {
    BlockingWork(on: path) {
      do throws(FileError) {
        return .success(try SystemFile.contents(of: path, atMost: limit + 1, within: span))
      } catch {
        return .failure(error)
      }
    }
  }

  package static func content(_ outcome: Outcome) throws(RequiredFileError) -> [UInt8] {
    switch outcome {
    case .success(.success(let bytes)): return bytes
    case .success(.failure(let error)): throw .file(error)
    case .failure(let error): throw .work(error)
    }
  }
}

/// Why a file could not be read. The description continues a sentence that ends with the file's name.
package enum RequiredFileError: Error, Equatable, CustomStringConvertible {
  case file(FileError)
  case work(BlockingWorkError)

  package var description: String {
    switch self {
    case .file(.failed(let code)): FileError.failed(code).description
    case .file(let error): error.description + RequiredFile.timeoutHint
    case .work(let error): error.description + RequiredFile.timeoutHint
    }
  }
}
