"""The upper part of a JPEG: a random resized crop seldom reaches the last row, and what lies below it costs time."""

CONTEXT = 2  # rows below that the smooth upsampling of colours looks at


def upper_part(data: bytes, height: int, width: int, rows: int) -> bytearray | None:
    """The file with a smaller height in its frame header: a decoder reads `rows` or a few more, and they are the whole
    image's.  Behind them it finds data that it does not expect.

    None where nothing would be saved, or where it does not work: progressive files, and several scans.  The header is
    searched rather than parsed, which would take as long as it saves; one of these very sizes that is not the frame's
    is changed in vain: the decoder then reads all rows.
    """
    for components in (3, 1):
        size = height.to_bytes(2, "big") + width.to_bytes(2, "big")
        frame = data.find(b"\xff\xc0\0%c\x08%b%c" % (8 + 3 * components, size, components))
        if frame >= 0:
            break
    if frame < 0 or data.find(b"\xff\xda\0%c%c" % (6 + 2 * components, components), frame) < 0:
        return None
    unit = 8 * max(data[frame + 11 + 3 * component] & 15 for component in range(components))
    kept = -(-(rows + CONTEXT) // unit) * unit
    if kept + unit > height:
        return None
    part = bytearray(data)
    part[frame + 5 : frame + 7] = kept.to_bytes(2, "big")
    return part
