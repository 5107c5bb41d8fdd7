#include "tests/ptx/decode.h"

namespace tessera::ptx {

void decode_bulk(Decoder& d, bool) { d.fail("bulk copies are not known"); }

}  // namespace tessera::ptx
