import ByteStreams
import Reactor

/// A file that a connection attempt needs: a secret, a certificate. It is read on a thread of its own, one read at a time.
enum NeededFile {
  typealias Read = Result<[UInt8], FileError>
  typealias Outcome = BlockingWork<Read>.Outcome

  /// The setting that limits the wait, for the end of an error's text.
  static let key = " ('upstream.timeouts.files')"

  /// Reads one byte more than `limit` where there is one, so that a file which is too large is noticed.
  static func work(_ path: String, atMost limit: Int, within span: TimeSpan) -> BlockingWork<Read> {
    BlockingWork(on: path) {
      do throws(FileError) {
        return .success(try SystemFile.contents(of: path, atMost: limit + 1, within: span))
      } catch {
        return .failure(error)
      }
    }
  }

  static func content(_ outcome: Outcome) throws(NeededFileError) -> [UInt8] {
    switch outcome {
    case .success(.success(let bytes)): return bytes
    case .success(.failure(let error)): throw .file(error)
    case .failure(let error): throw .work(error)
    }
  }
}

/// Why a file could not be read; reads on after its name.
enum NeededFileError: Error, Equatable, CustomStringConvertible {
  case file(FileError)
  case work(BlockingWorkError)

  var description: String {
    switch self {
    case .file(.failed(let code)): FileError.failed(code).description
    case .file(let error): error.description + NeededFile.key
    case .work(let error): error.description + NeededFile.key
    }
  }
}
